// What a run is, known before its first step, and what is said of it: run.json at its beginning, the figures and
// warnings at its end.
#pragma once

#include <string>
#include <vector>

#include "data/dataset.h"
#include "model/flops.h"
#include "train/config.h"
#include "train/events.h"
#include "train/machine_rates.h"
#include "train/memory_plan.h"
#include "train/progress.h"

namespace mantissa {

struct RunSetup {
  TrainConfig config;
  const Dataset& data;
  MachineRates rates;
  Device* device;  // null: the CPU
  int64_t steps;
  MemoryPlan memory;
  FlopsPerToken flops;
};

// "native", or "emulated" where any layer runs so on this device.
std::string path_of(const Decoder& decoder, const Device* device);
// Share of the forward GEMM FLOPs that run under a recipe that quantizes.
double low_precision_share(const Decoder& decoder);
// What the recipe's name does not say: that precision.rules leave no layer to it, or take layers from a baseline of
// 16 or 32 bits; else "".
std::string rules_note(const TrainConfig& config);

// run.json, but for what a GPU shows in its first step.
Json run_info(const RunSetup& setup, Engine& engine);
void add_device_choices(Json& info, const Device& device);

// The figures that follow from the steps; of `seconds` for the loop where no step's speed counts.
RunResult result_of(const RunSetup& setup, const Progress& progress);
// What is to be said of the whole run.
std::vector<Warning> warnings_of(const RunSetup& setup, const Progress& progress);

}  // namespace mantissa
