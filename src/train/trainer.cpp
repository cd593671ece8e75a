#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "train/model_output.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int64_t kSampledSegments = 4;

// Documents that a row holds at most. Of rows that were counted by a sample: more than any of them by far.
int64_t row_segments(const Dataset& data) {
  int64_t most = 1;
  for (const SplitReport* split : {&data.report().train, &data.report().validation})
    most = std::max(most, split->sampled ? kSampledSegments * (split->most_segments + 1) : split->most_segments);
  return most;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device)
    : setup_{.config = config,
             .data = data,
             .rates = rates,
             .device = device,
             .steps = config.steps(data.tokens(Split::kTrain)),
             .memory = {},
             .flops = {}},
      sampler_(config, data) {
  if (config.model.vocab_size < data.vocab_size())
    fail(Exit::kUsage, "model.vocab_size: {} is smaller than the tokenizer's {}", config.model.vocab_size,
         data.vocab_size());
  config.precision.validate();
  config.schedule.validate(setup_.steps);
  const PlanTarget target = device ? target_of(*device, row_segments(data)) : PlanTarget{machine().memory_bytes};
  setup_.memory = plan_memory(config, target);
  setup_.flops = flops_per_token(config.model, config.data.sequence_length, data.report().train.segment_length,
                                 parse_recompute(config.train.recompute));
  const EngineOptions options = engine_options(config, setup_.memory.micro_rows, target);
  if (device) most_segments_ = options.max_segments;
  engine_ = std::make_unique<Engine>(config.model, config.precision, options);
  eval_batch_.reserve(setup_.memory.micro_rows, config.data.sequence_length);
}

Json Trainer::info() { return run_info(setup_, *engine_); }

void Trainer::go_on(const Progress& progress, std::function<void(Engine&)> fill) {
  check(progress.step <= setup_.steps && progress.rows == progress.step * setup_.config.rows_per_step(),
        "trainer: goes on behind step {} and row {}, expected at most step {} of {} rows each", progress.step,
        progress.rows, setup_.steps, setup_.config.rows_per_step());
  progress_ = progress;
  fill_ = std::move(fill);
}

void Trainer::start(const Sink& tell) {
  const auto seed = static_cast<uint64_t>(setup_.config.run.seed);
  engine_->build();
  engine_->exec().state.seed = seed;
  if (!fill_ && setup_.config.model_init.empty()) engine_->initialize(seed);
  if (!fill_ && !setup_.config.model_init.empty()) {
    const auto begin = Clock::now();
    const int64_t bytes = engine_->load(setup_.config.model_init);
    if (setup_.device) setup_.device->synchronize();
    tell(WeightsLoaded{bytes, since(begin)});
  }
  sampler_.build(engine_->exec(), engine_->params());
  if (setup_.device) warm_up();
  if (fill_) fill_(*engine_);
}

// Plans of the libraries, GEMM searches and graphs are made on the first batch of the run, before its first step.
void Trainer::warm_up() {
  setup_.data.batch(Split::kTrain, 0, setup_.memory.micro_rows, eval_batch_);
  engine_->warm_up(checked(eval_batch_));
}

int64_t Trainer::measured_bytes() {
  if (!setup_.device) return 0;
  least_free_ = std::min(least_free_, setup_.device->free_bytes());
  const DeviceInfo& info = setup_.device->info();
  return (info.free_before_bytes > 0 ? info.free_before_bytes : info.memory_bytes) - least_free_;
}

RunResult Trainer::run(const std::string& folder, const TrainHooks& hooks) {
  RunFolder own(folder, RunFolder::Kind::kRun);
  return run(own, hooks);
}

RunResult Trainer::run(RunFolder& folder, const TrainHooks& hooks) {
  const auto begin = Clock::now();
  std::vector<Sink> sinks;
  const Sink tell = [&](const Event& event) {
    for (const Sink& sink : sinks) sink(event);
    if (hooks.events) hooks.events(event);
  };
  folder.claim();
  if (!folder.lock_note().empty()) tell(Warning{folder.lock_note()});
  const ModelOutput output(setup_.config, setup_.data, folder.path());
  const auto clock = [&] { return hooks.clock ? hooks.clock() : since(begin); };
  // The first batches are filled while the weights are made.
  Loader loader(setup_.data, {.first_step = progress_.step + 1,
                              .steps = setup_.steps,
                              .accumulation = setup_.memory.accumulation,
                              .micro_rows = setup_.memory.micro_rows});
  Json about = info();
  start(tell);
  const std::string config = config::dump([this](config::Fields& f) { setup_.config.describe(f); });
  folder.begin(config);
  sinks = open_sinks(setup_.config, folder.path());
  tell(RunBegan{config});
  tell(RunInfo{std::make_shared<Json>(about)});
  tell(RunReady{clock()});

  const auto first_step = Clock::now();
  const auto seconds = [&, before = progress_.seconds] { return before + since(first_step); };
  const int64_t begins_behind = progress_.step;
  int64_t memory_bytes = 0;
  std::vector<TensorError> errors;
  while (progress_.step < setup_.steps) {
    StepReport report = train_step(loader, errors, tell);
    report.seconds = seconds();
    if (report.step == begins_behind + 1) {
      const double at = clock();
      if (report.step == 1) progress_.first_step_seconds = at;
      memory_bytes = measured_bytes();
      if (setup_.device) {
        add_device_choices(about, *setup_.device);
        tell(RunInfo{std::make_shared<Json>(about)});
      }
      tell(FirstStep{at});
    }
    report.memory_bytes = memory_bytes;
    tell(report);
    if (!errors.empty()) tell(QuantizationReport{report.step, errors});
    if (evaluation_due()) {
      const EvalReport evaluation{report.step, report.tokens, seconds(), evaluate(hooks)};
      tell(evaluation);
      progress_.eval_loss = evaluation.loss;
    }
    if (sampler_.due(report.step, setup_.steps)) sampler_.run(report.step, tell);
    folder.expect_held();
    progress_.seconds = seconds();
    if (hooks.after_step) hooks.after_step(progress_, *engine_);
    if (hooks.stop && hooks.stop() && report.step < setup_.steps)
      fail(Exit::kInterrupted,
           "stopped after step {} of {}; the weights are not kept, the same command begins at step 1", report.step,
           setup_.steps);
  }
  for (const Warning& warning : warnings_of(setup_, progress_)) tell(warning);
  RunResult result = result_of(setup_, progress_);
  result.path = path();
  result.memory_measured_bytes = measured_bytes();
  result.model = output.write(engine_->params(), folder);
  result.seconds = since(begin);
  tell(result);
  return result;
}

}  // namespace mantissa
