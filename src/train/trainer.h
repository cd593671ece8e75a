// One training run: its loop of steps, evaluations and samples. What happens is told as events (train/events.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/run_folder.h"
#include "train/run_sampler.h"
#include "train/run_setup.h"
#include "train/sinks/sink.h"

namespace mantissa {

struct TrainHooks {
  Sink events;                    // beside the sinks of the table, which open when the run's folder is its own
  std::function<double()> clock;  // seconds since the command began; empty: since run()
  std::function<bool()> stop;     // asked after each step and evaluation batch; true: leave with Exit::kInterrupted
  // After each step with its evaluation and samples. The state may be read, and the weights not be changed.
  std::function<void(const Progress&, Engine&)> after_step;
};

class Trainer {
 public:
  // `config` is resolved, `data` loaded with its seed. `device` is the GPU, null for the CPU, and must outlive this.
  // Nothing is allocated for the model yet.
  Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device = nullptr);

  const MemoryPlan& memory() const { return setup_.memory; }
  int64_t steps() const { return setup_.steps; }
  const FlopsPerToken& flops() const { return setup_.flops; }
  // What run.json says of the run.
  Json info();
  std::string path() const { return path_of(engine_->decoder(), setup_.device); }
  double low_precision_share() const { return mantissa::low_precision_share(engine_->decoder()); }
  std::string rules_note() const { return mantissa::rules_note(setup_.config); }

  // Before run(), which then begins behind `progress`, in the state that `fill` writes (Engine::visit_state()), instead
  // of with new weights.
  void go_on(const Progress& progress, std::function<void(Engine&)> fill);

  // Trains into `folder`, which is not touched before the weights to start from are there. Throws Exit::kNonFinite
  // (nothing of the bad step is applied), Exit::kInterrupted.
  RunResult run(RunFolder& folder, const TrainHooks& hooks);
  RunResult run(const std::string& folder, const TrainHooks& hooks);

 private:
  void start(const Sink& tell);
  void warm_up();
  // The batch as the engine takes it. GPU: Exit::kInput for more documents than a captured step has room for.
  MicroBatch checked(const Batch& batch) const;
  // Bytes of the GPU in use at the most so far; looks again.
  int64_t measured_bytes();
  // The next step, and progress with it. `errors` comes back with the quantization errors of a step that measures them.
  StepReport train_step(Loader& loader, std::vector<TensorError>& errors, const Sink& tell);
  // Whether it is time after the step that has ended.
  bool evaluation_due() const;
  double evaluate(const TrainHooks& hooks);
  [[noreturn]] void diagnose(int64_t step, double loss, const StepBatches& batches);

  RunSetup setup_;
  Progress progress_;
  std::function<void(Engine&)> fill_;
  int64_t least_free_ = INT64_MAX;     // of the GPU
  int64_t most_segments_ = INT64_MAX;  // of a micro-batch; a CPU takes any number
  std::unique_ptr<Engine> engine_;
  Batch eval_batch_;
  RunSampler sampler_;
};

}  // namespace mantissa
