// What a run needs and whether it fits, before anything is allocated.
#pragma once

#include "train/config.h"

namespace mantissa {

struct MemoryPlan {
  int64_t micro_rows = 0;    // rows of a micro-batch
  int64_t accumulation = 0;  // micro-batches of a step
  MemoryLedger ledger;       // the engine, and the batches of a step
  int64_t device_bytes = 0;

  int64_t tokens(int64_t sequence_length) const { return micro_rows * sequence_length; }
  double percent() const { return 100.0 * static_cast<double>(ledger.total()) / static_cast<double>(device_bytes); }
};

// Share of the memory that a run may plan: what is left holds the tokens of the data, the program and the system.
inline constexpr double kPlannedShare = 0.9;

// Resolves batch.micro_batch. Throws Exit::kMemory when the run does not fit kPlannedShare of `device_bytes`, naming
// two ways that do; Exit::kUsage for a micro-batch that does not divide the step.
MemoryPlan plan_memory(const TrainConfig& config, int64_t device_bytes);

// Engine options of a run with `micro_rows` rows a micro-batch.
EngineOptions engine_options(const TrainConfig& config, int64_t micro_rows);

}  // namespace mantissa
