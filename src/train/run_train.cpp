#include "train/run_train.h"

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace mantissa {
namespace {

const char* kResult = "result.json";

bool is_finished(const std::string& folder, const TrainConfig& config) {
  if (!exists(join_path(folder, kResult))) return false;
  config.refuse_other(read_text(join_path(folder, "config.yaml")), folder + ": holds a finished run");
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

std::optional<RunResult> run_train(const TrainConfig& config, bool restart, const RunHooks& hooks) {
  const std::string folder = config.run.folder();
  config.refuse_unread(false);
  if (exists(join_path(folder, "compare.json")))
    fail(Exit::kUsage, "{}: holds a comparison; give another run.dir", folder);
  if (!restart && is_finished(folder, config)) return {};
  RunFolder run_folder(folder, RunFolder::Kind::kRun);
  // Another process may have ended it before this one had the lock.
  if (!restart && is_finished(folder, config)) return {};
  Device* const device = hooks.device ? hooks.device() : nullptr;
  const Dataset data = Dataset::load(config.data, static_cast<uint64_t>(config.run.seed), {.progress = hooks.reading});
  Trainer(config, data, {1, 1}, device);  // checked before the rates are measured
  const MachineRates rates = measure_rates(device);
  Trainer trainer(config, data, rates, device);
  if (hooks.started) hooks.started(trainer, data, rates);
  return trainer.run(run_folder, hooks.train);
}

}  // namespace mantissa
