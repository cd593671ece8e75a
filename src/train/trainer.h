// One training run: its loop of steps, evaluations and samples. What happens is told as events (train/events.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/resume.h"
#include "train/run_checkpoints.h"
#include "train/run_folder.h"
#include "train/run_sampler.h"
#include "train/run_setup.h"
#include "train/sinks/sink.h"

namespace mantissa {

struct TrainHooks {
  Sink events;                    // beside the sinks of the table, which open when the run's folder is its own
  std::function<double()> clock;  // seconds since the command began; empty: since run()
  // Asked between steps, evaluation batches and samples, and while data is waited for; true: save, and leave with
  // Exit::kInterrupted.
  std::function<bool()> stop;
  // After each step with its evaluation and samples. The state may be read, and the weights not be changed.
  std::function<void(const Progress&, Engine&)> after_step;
};

class Trainer {
 public:
  // `config` is resolved, `data` loaded with its seed. `device` is the GPU, null for the CPU, and must outlive this.
  // Nothing is allocated for the model yet.
  // `micro_rows`: of a micro-batch, where it is not 0; else as the config says.
  Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device = nullptr,
          int64_t micro_rows = 0);

  const RunSetup& setup() const { return setup_; }

  const MemoryPlan& memory() const { return setup_.memory; }
  int64_t steps() const { return setup_.steps; }
  const FlopsPerToken& flops() const { return setup_.flops; }
  // What run.json says of the run.
  Json info();
  std::string path() const { return path_of(engine_->decoder(), setup_.device); }
  double low_precision_share() const { return mantissa::low_precision_share(engine_->decoder()); }
  std::string rules_note() const { return mantissa::rules_note(setup_.config); }

  // Before run(), which then begins behind the progress that `fill` returns, in the state that it writes
  // (Engine::visit_state()), instead of with new weights.
  void go_on(std::function<Behind(Engine&)> fill);

  // Trains into `folder`, which is not touched before the weights to start from are there, and saves as the config
  // says. Throws Exit::kNonFinite (nothing of the bad step is applied), Exit::kInterrupted, Exit::kStorage.
  RunResult run(RunFolder& folder, const TrainHooks& hooks);
  RunResult run(const std::string& folder, const TrainHooks& hooks);

 private:
  // Weights, or what fill_ says.
  std::optional<Behind> start(const Sink& tell);
  void warm_up();
  // The batch as the engine takes it. GPU: Exit::kInput for more documents than a captured step has room for.
  MicroBatch checked(const Batch& batch) const;
  // Bytes of the GPU in use at the most so far; looks again.
  int64_t measured_bytes();
  // The next step, and progress with it. `errors` comes back with the quantization errors of a step that measures them.
  // Nothing: a stop was asked for while its data was waited for.
  std::optional<StepReport> train_step(Loader& loader, std::vector<TensorError>& errors, const Sink& tell,
                                       const TrainHooks& hooks);
  // The evaluation and the samples behind the step that has ended. False: a stop was asked for in the midst of them.
  bool finish_step(const Sink& tell, const TrainHooks& hooks, const std::function<double()>& seconds);
  // Whether it is time after the step that has ended.
  bool evaluation_due() const;
  // Nothing where a stop was asked for.
  std::optional<double> evaluate(const TrainHooks& hooks);
  // A stop was asked for: what stands is saved, told and left with Exit::kInterrupted.
  [[noreturn]] void leave(RunCheckpoints& checkpoints, const std::function<void(const Json& positions)>& save,
                          const Json& positions, const Sink& tell);
  void skip_or_stop(const Error& error, int64_t step, double loss, const StepBatches& batches, const Sink& tell);
  [[noreturn]] void diagnose(int64_t step, double loss, const StepBatches& batches);

  RunSetup setup_;
  Progress progress_;
  std::function<Behind(Engine&)> fill_;
  int64_t least_free_ = INT64_MAX;     // of the GPU
  int64_t most_segments_ = INT64_MAX;  // of a micro-batch; a CPU takes any number
  std::unique_ptr<Engine> engine_;
  Batch eval_batch_;
  RunSampler sampler_;
};

}  // namespace mantissa
