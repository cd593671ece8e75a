// Whole optimizer steps of a config, verified, timed and profiled.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/memory_plan.h"

namespace mantissa {

struct StepBenchOptions {
  double seconds = 20;  // of whole steps
  int64_t least_steps = 3;
  int64_t warm_steps = 2;                                                 // after the first one
  bool profile = true;                                                    // GPU: one eager step, op by op
  std::function<void(const std::string& what, double seconds)> progress;  // seconds since the call; may be empty
};

// The ops of one kind in a step.
struct StepPart {
  std::string name;  // "fprop", "attention backward", ...
  double us = 0;     // of a step
  int64_t calls = 0;
};

struct StepProfile {
  std::vector<StepPart> parts;  // in the order of a step
  double ops_us = 0;            // their sum
  double step_us = 0;           // the profiled step, from the first op's begin to the last one's end
};

// What the card said during the run, every half second.
struct StateRange {
  int64_t samples = 0;
  int sm_clock_min = 0, sm_clock_max = 0, memory_clock_mhz = 0, temperature_max = 0;
  double power_mean = 0, power_max = 0, power_limit_w = 0;
  std::map<std::string, int64_t> throttle;  // reason -> samples
  std::string absence;
};

struct StepBench {
  MemoryPlan plan;
  bool packed = false;          // real documents; else random tokens, one document a row
  double segment_length = 0;    // Σ s² / Σ s
  double first_loss = 0;        // per token, before any update
  double grad_norm = 0;         // of the first step
  double ready_s = 0;           // from the call to the first step's begin
  double first_step_s = 0;      // of the first step alone
  std::vector<double> steps_s;  // ascending
  int64_t measured_bytes = 0;   // GPU: free before the program less the least free during the run; else 0
  StateRange state;
  StepProfile profile;
  ParamStoreOptions store;  // dtypes of the parameters
  std::vector<std::string> gemm_choices;

  double median_s() const { return steps_s[steps_s.size() / 2]; }
  // (upper - lower quartile) / median
  double spread() const { return (steps_s[steps_s.size() * 3 / 4] - steps_s[steps_s.size() / 4]) / median_s(); }
};

// `data` null: random tokens. `device` null: the CPU. Exit::kNonFinite where the first loss is not finite or the
// gradients are not, Exit::kInternal where the loss of untrained weights is far from ln(vocabulary).
StepBench bench_steps(const TrainConfig& config, const Dataset* data, Device* device, const StepBenchOptions& options);

// Seconds of a whole step on the CPU: the mean of `steps` behind a first one, of new weights on `data`. Nothing is
// verified.
double step_seconds(const TrainConfig& config, const Dataset& data, int64_t steps);

// Sums of a profile's ops by kind. GEMMs beside the loss are the logits'.
StepProfile summarize_ops(const std::vector<OpTime>& ops);

}  // namespace mantissa
