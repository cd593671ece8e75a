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

Trainer::Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device,
                 int64_t micro_rows)
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
  TrainConfig planned = config;
  if (micro_rows > 0) planned.batch.micro_batch = std::to_string(micro_rows);
  setup_.memory = plan_memory(planned, target);
  setup_.flops = flops_per_token(config.model, config.data.sequence_length, data.report().train.segment_length,
                                 parse_recompute(config.train.recompute));
  const EngineOptions options = engine_options(config, setup_.memory.micro_rows, target);
  if (device) most_segments_ = options.max_segments;
  engine_ = std::make_unique<Engine>(config.model, config.precision, options);
  eval_batch_.reserve(setup_.memory.micro_rows, config.data.sequence_length);
}

Json Trainer::info() { return run_info(setup_, *engine_); }

void Trainer::go_on(std::function<Behind(Engine&)> fill) { fill_ = std::move(fill); }

std::optional<Behind> Trainer::start(const Sink& tell) {
  const auto seed = static_cast<uint64_t>(setup_.config.run.seed);
  engine_->build();
  engine_->exec().state.seed = seed;
  if (!fill_ && setup_.config.model_init.empty()) engine_->initialize(seed);
  if (!fill_ && !setup_.config.model_init.empty()) {
    const auto begin = Clock::now();
    const int64_t bytes = engine_->load(setup_.config.init_folder());
    if (setup_.device) setup_.device->synchronize();
    tell(WeightsLoaded{bytes, since(begin)});
  }
  sampler_.build(engine_->exec(), engine_->params());
  if (setup_.device) warm_up();
  if (!fill_) return std::nullopt;
  Behind behind = fill_(*engine_);
  const Progress& p = behind.progress;
  check(p.step <= setup_.steps && p.rows == p.step * setup_.config.rows_per_step(),
        "trainer: goes on behind step {} and row {}, expected at most step {} of {} rows each", p.step, p.rows,
        setup_.steps, setup_.config.rows_per_step());
  progress_ = p;
  for (const std::string& note : behind.notes) tell(Warning{note});
  return behind;
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
  Sinks sinks;
  const Sink tell = [&](const Event& event) {
    sinks.take(event);
    if (hooks.events) hooks.events(event);
  };
  folder.claim();
  if (!folder.lock_note().empty()) tell(Warning{folder.lock_note()});
  const ModelOutput output(setup_.config, setup_.data, folder.path());
  RunCheckpoints checkpoints(setup_.config, folder.path(), setup_.memory);
  const auto clock = [&] { return hooks.clock ? hooks.clock() : since(begin); };
  std::optional<Loader> loader;
  const auto load = [&] {
    loader.emplace(setup_.data, LoaderOptions{.first_step = progress_.step + 1,
                                              .steps = setup_.steps,
                                              .accumulation = setup_.memory.accumulation,
                                              .micro_rows = setup_.memory.micro_rows});
  };
  // The first batches are filled while the weights are made.
  if (!fill_) load();
  Json about = info();
  const std::optional<Behind> behind = start(tell);
  if (behind) load();
  if (hooks.stop && hooks.stop())
    fail(Exit::kInterrupted, "stopped before step {}; the same command begins there", progress_.step + 1);

  const std::string config = config::dump([this](config::Fields& f) { setup_.config.describe(f); });
  const bool own = behind && behind->own;
  own ? folder.go_on(config) : folder.begin(config);
  const bool lines = behind && bring_lines(*behind, folder.path());
  checkpoints.begin(own ? &progress_ : nullptr);
  sinks.open(setup_.config, folder.path(), lines ? behind->positions : Json());
  tell(RunBegan{config});
  if (behind) {
    about["started"] = behind->started, about["resumed"] = behind->resumed;
    tell(Resumed{progress_.step, setup_.steps, behind->from});
  }
  tell(RunInfo{std::make_shared<Json>(about)});
  tell(RunReady{clock()});

  const auto first_step = Clock::now();
  const auto seconds = [&, before = progress_.seconds] { return before + since(first_step); };
  const auto run_seconds = [&, before = progress_.run_seconds] { return before + since(begin); };
  const auto save = [&](const Json& positions) {
    sinks.sync();
    checkpoints.save(progress_, save_record(setup_, progress_, positions, about),
                     [this](const StateVisitor& f) { engine_->visit_state(f); });
  };
  const int64_t begins_behind = progress_.step;
  int64_t memory_bytes = 0;
  std::vector<TensorError> errors;
  while (progress_.owes != 0 || progress_.step < setup_.steps) {
    if (progress_.owes == 0) {
      std::optional<StepReport> report = train_step(*loader, errors, tell, hooks);
      if (!report) leave(checkpoints, save, sinks.positions(), tell);
      report->seconds = seconds();
      if (report->step == begins_behind + 1) {
        const double at = clock();
        if (report->step == 1) progress_.first_step_seconds = at;
        memory_bytes = measured_bytes();
        if (setup_.device) {
          add_device_choices(about, *setup_.device);
          tell(RunInfo{std::make_shared<Json>(about)});
        }
        tell(FirstStep{at});
      }
      report->memory_bytes = memory_bytes;
      tell(*report);
      if (!errors.empty()) tell(QuantizationReport{report->step, errors});
    }
    progress_.owes = 1;
    progress_.seconds = seconds(), progress_.run_seconds = run_seconds();
    const Json behind_step = sinks.positions();
    if (!finish_step(tell, hooks, seconds)) leave(checkpoints, save, behind_step, tell);
    progress_.owes = 0;
    folder.expect_held();
    progress_.seconds = seconds(), progress_.run_seconds = run_seconds();
    if (hooks.after_step) hooks.after_step(progress_, *engine_);
    checkpoints.report(tell);
    if (checkpoints.due(progress_, tell)) save(sinks.positions());
    const bool stop = checkpoints.take_stop() || (hooks.stop && hooks.stop());
    if (stop && (checkpoints.on() || progress_.step < setup_.steps)) leave(checkpoints, save, sinks.positions(), tell);
  }
  if (checkpoints.on() && !checkpoints.saved(progress_)) save(sinks.positions());
  checkpoints.finish(tell);
  for (const Warning& warning : warnings_of(setup_, progress_)) tell(warning);
  RunResult result = result_of(setup_, progress_);
  result.path = path();
  result.memory_measured_bytes = measured_bytes();
  result.model = output.write(engine_->params(), folder);
  result.seconds = run_seconds();
  tell(result);
  return result;
}

bool Trainer::finish_step(const Sink& tell, const TrainHooks& hooks, const std::function<double()>& seconds) {
  if (evaluation_due()) {
    const std::optional<double> loss = evaluate(hooks);
    if (!loss) return false;
    tell(EvalReport{progress_.step, progress_.tokens, seconds(), *loss});
    progress_.eval_loss = *loss;
    if (!(progress_.best_loss <= *loss) && std::isfinite(*loss))
      progress_.best_loss = *loss, progress_.best_step = progress_.step;
  }
  if (!sampler_.due(progress_.step, setup_.steps)) return true;
  return sampler_.run(progress_.step, tell, hooks.stop);
}

void Trainer::leave(RunCheckpoints& checkpoints, const std::function<void(const Json&)>& save, const Json& positions,
                    const Sink& tell) {
  if (progress_.step == 0) fail(Exit::kInterrupted, "stopped before step 1; the same command begins there");
  const std::string at = fmt::format("stopped after step {} of {}", progress_.step, setup_.steps);
  if (!checkpoints.on())
    fail(Exit::kInterrupted,
         "{}; nothing is kept of it (train.checkpoint_every is 0), the same command begins at step 1", at);
  if (!checkpoints.saved(progress_)) save(positions);
  checkpoints.finish(tell);
  fail(Exit::kInterrupted, "{}, which is saved; the same command goes on from there", at);
}

}  // namespace mantissa
