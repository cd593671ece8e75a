#include "train/run_train.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace mantissa {
namespace {

const char* kResult = "result.json";

bool is_finished(const std::string& folder, const TrainConfig& config) {
  if (!exists(join_path(folder, kResult))) return false;
  const std::string recorded = read_text(join_path(folder, "config.yaml"));
  // Another length goes on from the last checkpoint, where there is one and the schedule allows it.
  if (config.differs_in_length_alone(recorded) &&
      !CheckpointStore(join_path(folder, CheckpointStore::kFolder)).steps().empty())
    return false;
  config.refuse_other(recorded, folder + ": holds a finished run");
  return true;
}

}  // namespace

double finished_loss(const std::string& folder) {
  const std::string path = join_path(folder, kResult);
  const Json result = read_json(path);
  const Json& loss = member(result, "loss", path);
  if (!loss.is_number() && !loss.is_null())
    fail(Exit::kInput, "{}: loss is {}, expected a number", path, loss.type_name());
  return loss.is_number() ? loss.get<double>() : NAN;
}

RunResult train_into(RunFolder& folder, const TrainConfig& config, const std::optional<ResumePoint>& point,
                     const Dataset& data, const MachineRates& rates, Device* device, const RunHooks& hooks) {
  Trainer trainer(config, data, rates, device, point ? point->micro_rows(config) : 0);
  if (point) {
    point->expect_same(trainer.setup());
    if (device) point->set_choices(*device);
    trainer.go_on([&](Engine& engine) { return point->fill(engine, trainer.setup()); });
  }
  if (hooks.started) hooks.started(trainer, data, rates);
  return trainer.run(folder, hooks.train);
}

std::optional<RunResult> run_train(const TrainConfig& config, const StartOptions& start, const RunHooks& hooks) {
  const std::string folder = config.run.folder();
  config.refuse_unread(false);
  if (exists(join_path(folder, "compare.json")))
    fail(Exit::kUsage, "{}: holds a comparison; give another run.dir", folder);
  const bool asks = start.restart || !start.resume.empty();
  if (!asks && is_finished(folder, config)) return {};
  RunFolder run_folder(folder, RunFolder::Kind::kRun);
  // Another process may have ended it before this one had the lock.
  if (!asks && is_finished(folder, config)) return {};
  const std::optional<ResumePoint> point = ResumePoint::find(config, start);
  Device* const device = hooks.device ? hooks.device() : nullptr;
  const Dataset data = Dataset::load(config.data, static_cast<uint64_t>(config.run.seed), {.progress = hooks.reading});
  {
    // Checked before the rates are measured.
    const Trainer first(config, data, {1, 1}, device, point ? point->micro_rows(config) : 0);
    if (point) point->expect_same(first.setup());
  }
  const MachineRates rates = measure_rates(device);
  return train_into(run_folder, config, point, data, rates, device, hooks);
}

}  // namespace mantissa
