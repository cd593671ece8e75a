// One training run: steps, evaluations, records (docs/run_folder.md).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "model/flops.h"
#include "train/config.h"
#include "train/memory_plan.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/run_sampler.h"

namespace mantissa {

// What MFU is held against: of a CPU the GEMM rates measured once at start-up, of a GPU its dense BF16 peak alone.
struct MachineRates {
  double bf16_gflops = 0, f32_gflops = 0;
  std::string method = "BF16 GEMM rate measured at start-up";
};
// Of the CPU where `device` is null.
MachineRates measure_rates(Device* device = nullptr);

struct StepReport {
  int64_t step = 0, steps = 0, tokens = 0;  // tokens so far
  double seconds = 0;                       // since the first step began
  double loss = 0, grad_norm = 0, lr = 0, tokens_per_s = 0, mfu = 0;
  double data_wait_s = 0;    // of this step's seconds: until its batches were there
  int64_t memory_bytes = 0;  // GPU: most that was seen in use so far; 0: not known
};

struct EvalReport {
  int64_t step = 0, tokens = 0;
  double seconds = 0, loss = 0;
};

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
};

struct TrainHooks {
  std::function<double()> clock;                              // seconds since the command began; empty: since run()
  std::function<void(int64_t bytes, double seconds)> loaded;  // model.init: its weights' bytes, the time they took
  std::function<void(double seconds)> started;                // by the clock, before the first step
  std::function<void(double seconds)> stepped;                // by the clock, after the first step
  std::function<void(const StepReport&)> step;
  std::function<void(const EvalReport&)> evaluation;
  std::function<void(const SampleReport&)> sample;
  std::function<void(const std::string&)> warning;
  std::function<bool()> stop;  // asked after each step and evaluation batch; true: leave with Exit::kInterrupted
};

class Trainer {
 public:
  // `config` is resolved, `data` loaded with its seed. `device` is the GPU, null for the CPU, and must outlive this.
  // Nothing is allocated for the model yet.
  Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device = nullptr);

  const MemoryPlan& memory() const { return memory_; }
  int64_t steps() const { return steps_; }
  const FlopsPerToken& flops() const { return flops_; }
  // What run.json says of the run.
  Json info();
  // "native", or "emulated" where any layer runs so.
  std::string path();
  // Share of the forward GEMM FLOPs that run under a recipe that quantizes.
  double low_precision_share();
  // What the recipe's name does not say: that precision.rules leave no layer to it, or take layers from a baseline of
  // 16 or 32 bits; else "".
  std::string rules_note() const;

  // Trains into `folder`, which is not touched before the weights to start from are there. Throws Exit::kNonFinite
  // (nothing of the bad step is applied), Exit::kInterrupted.
  RunResult run(RunFolder& folder, const TrainHooks& hooks);
  RunResult run(const std::string& folder, const TrainHooks& hooks);

 private:
  // What a run adds up on its way.
  struct Tally {
    double tail_loss = 0, unmoved = 0, steady_seconds = 0;
    int64_t tail_steps = 0, steady_steps = 0, idle_steps = 0, amax_steps = 0;
  };

  // How a layer's products run on this device.
  Path path_of(const Linear& linear) const;
  void start(const TrainHooks& hooks);
  void warm_up();
  // The batch as the engine takes it. GPU: Exit::kInput for more documents than a captured step has room for.
  MicroBatch checked(const Batch& batch) const;
  // Bytes of the GPU in use at the most so far; looks again.
  int64_t measured_bytes();
  // `errors` comes back with the quantization errors of a step that measures them.
  StepReport train_step(int64_t step, Loader& loader, std::vector<TensorError>& errors, Tally& tally,
                        const TrainHooks& hooks);
  double evaluate(int64_t rows, const TrainHooks& hooks);
  [[noreturn]] void diagnose(int64_t step, double loss, const StepBatches& batches);
  void summarize(const Tally& tally, double loop_seconds, RunResult& result) const;
  void warn_of(const Tally& tally, const TrainHooks& hooks) const;

  TrainConfig config_;
  const Dataset& data_;
  MachineRates rates_;
  Device* device_;
  int64_t least_free_ = INT64_MAX;     // of the GPU
  int64_t most_segments_ = INT64_MAX;  // of a micro-batch; a CPU takes any number
  int64_t steps_;
  MemoryPlan memory_;
  FlopsPerToken flops_;
  std::unique_ptr<Engine> engine_;
  Batch eval_batch_;
  RunSampler sampler_;
};

}  // namespace mantissa
