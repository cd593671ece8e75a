// What a run needs and whether it fits, before anything is allocated.
#pragma once

#include "train/config.h"

namespace mantissa {

struct MemoryPlan {
  int64_t micro_rows = 0;        // rows of a micro-batch
  int64_t accumulation = 0;      // micro-batches of a step
  MemoryLedger ledger;           // CPU: the engine, and the batches of a step; GPU: the engine, context and libraries
  int64_t checkpoint_bytes = 0;  // of one on the disk; 0: none are made
  // Whether checkpoints are written from a copy in host memory, beside training; else training stands still. The copy
  // is made where there is room for it behind all else.
  bool copies = false;
  int64_t device_bytes = 0;
  bool gpu = false;
  bool fits = true;

  int64_t copy_bytes() const { return copies ? checkpoint_bytes : 0; }
  int64_t tokens(int64_t sequence_length) const { return micro_rows * sequence_length; }
  double percent() const { return 100.0 * static_cast<double>(ledger.total()) / static_cast<double>(device_bytes); }
};

// Share of a machine's memory that a run may plan: what is left holds the tokens of the data, the program and the
// system.
inline constexpr double kPlannedShare = 0.9;
// Of a GPU's memory: the context and the libraries are planned, the allocator's granularity is left.
inline constexpr double kPlannedGpuShare = 0.97;
// What the driver's context, the kernels and the libraries' own memory take, an upper bound: 540 to 544 MiB measured on
// an H200 with CUDA 13.0, cuBLASLt 13.1 and cuDNN 9.19.
inline constexpr int64_t kGpuContextBytes = int64_t{600} << 20;
// Tokens of an automatic micro-batch on a GPU at most: more gain nothing that is worth their memory.
inline constexpr int64_t kGpuMicroTokens = 32768;

// What a run is planned for.
struct PlanTarget {
  int64_t bytes = 0;  // of the machine; of a GPU those that are free before the program touches it; 0: not known
  bool gpu = false;
  Device* device = nullptr;  // the GPU, where it is open
  int64_t row_segments = 0;  // documents of a row at most; 0: not known
};
PlanTarget target_of(Device& device, int64_t row_segments);

// Resolves batch.micro_batch: auto is the step's rows, halved until they fit, and on a GPU until they hold
// kGpuMicroTokens at most. Throws Exit::kMemory when the run does not fit the planned share of the memory, naming two
// ways that do; Exit::kUsage for a micro-batch that does not divide the step.
MemoryPlan plan_memory(const TrainConfig& config, const PlanTarget& target);
// The same with the smallest micro-batch where none fits.
MemoryPlan find_plan(const TrainConfig& config, const PlanTarget& target);
// Throws the Exit::kMemory of a plan that does not fit.
[[noreturn]] void refuse_plan(const TrainConfig& config, const MemoryPlan& plan, const PlanTarget& target);
// On a CPU.
inline MemoryPlan plan_memory(const TrainConfig& config, int64_t bytes) {
  return plan_memory(config, PlanTarget{.bytes = bytes});
}

// Engine options of a run with `micro_rows` rows a micro-batch.
EngineOptions engine_options(const TrainConfig& config, int64_t micro_rows, const PlanTarget& target);

}  // namespace mantissa
