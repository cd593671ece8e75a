// The facts of a run, each told once, when it happens. Whoever keeps or shows them is a sink (train/sinks/sink.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "recipes/recipe.h"

namespace mantissa {

// The weights of model.init are loaded.
struct WeightsLoaded {
  int64_t bytes = 0;
  double seconds = 0;
};

// The run's folder is its own from here on.
struct RunBegan {
  std::string config;  // the text of config.yaml
};

// Behind RunBegan, where the run does not begin with step 1.
struct Resumed {
  int64_t step = 0, steps = 0;  // behind which it goes on
  std::string from;             // the checkpoint
};

// run.json (docs/run_folder.md): once a run begins, on a GPU again when its first step has shown more.
struct RunInfo {
  std::shared_ptr<const Json> json;
};

// Before the first step, and after it, by TrainHooks::clock.
struct RunReady {
  double seconds = 0;
};
struct FirstStep {
  double seconds = 0;
};

struct StepReport {
  int64_t step = 0, steps = 0, tokens = 0;  // tokens so far
  double seconds = 0;                       // since the first step began
  double loss = 0, grad_norm = 0, lr = 0, tokens_per_s = 0, mfu = 0;
  double data_wait_s = 0;    // of this step's seconds: until its batches were there
  int64_t memory_bytes = 0;  // GPU: most that was seen in use so far; 0: not known
  bool skipped = false;      // not finite, nothing was applied (train.on_nonfinite)
};

// After its step's report, where the step was measured.
struct QuantizationReport {
  int64_t step = 0;
  std::vector<TensorError> errors;
};

// A loss or a gradient of the step is not finite, and nothing of it was applied.
struct NonFinite {
  int64_t step = 0;
  std::shared_ptr<const Json> record;  // nonfinite.json
};

struct EvalReport {
  int64_t step = 0, tokens = 0;
  double seconds = 0, loss = 0;
};

struct SampleReport {
  int64_t step = 0;
  std::string prompt, text;  // the text behind the prompt
  int64_t tokens = 0;        // drawn
  std::string stop;          // Generation::stop
};

// A checkpoint is durable.
struct CheckpointSaved {
  int64_t step = 0;
  uint64_t bytes = 0;
  double copy_seconds = 0, write_seconds = 0;  // training stood still; the thread beside it was busy
};

struct Warning {
  std::string text;
};

// The end of a run that trained all of its steps: the figures of result.json. A run that stops or fails ends without.
struct RunResult {
  double loss = 0;       // mean of the last tenth of the steps
  double eval_loss = 0;  // after the last step; NaN without validation rows
  double tokens_per_s = 0, mfu = 0, nanogpt_legacy_v1 = 0, combined_formula_v2 = 0, component_summation_v2025 = 0;
  double memory_pct = 0, seconds = 0;
  double first_step_seconds = 0;      // from the command's start to the end of the first step
  int64_t memory_planned_bytes = 0;   // of the device
  int64_t memory_measured_bytes = 0;  // GPU: free before the program, less the least that was seen free; else 0
  std::string path;                   // native | emulated
  std::string model;                  // where the weights were saved, in words; "": they were not
  int64_t steps = 0, tokens = 0;
  int64_t skipped = 0;  // of the steps
};

using Event = std::variant<WeightsLoaded, RunBegan, RunInfo, RunReady, FirstStep, StepReport, QuantizationReport,
                           EvalReport, SampleReport, Warning, RunResult, Resumed, CheckpointSaved, NonFinite>;

// Handlers by kind, for std::visit: On{[&](const StepReport& r) { ... }, [](const auto&) {}}.
template <class... Handlers>
struct On : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
On(Handlers...) -> On<Handlers...>;

}  // namespace mantissa
