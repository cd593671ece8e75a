#include "train/compare.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/machine.h"
#include "base/version.h"
#include "train/sinks/run_log.h"

namespace mantissa {
namespace {

// The recipe that the others are measured against.
std::string baseline_recipe() { return plain_recipe(/*full_precision=*/false).name; }

const Json* find_row(const Json& rows, const std::string& name) {
  for (const Json& row : rows)
    if (row.value("name", "") == name) return &row;
  return nullptr;
}

double mean(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

Json spread(const std::vector<double>& x) {
  if (x.size() < 2) return nullptr;
  const double m = mean(x);
  double sum = 0;
  for (double v : x) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(x.size() - 1));
}

Json row_json(const CompareRowSpec& spec, const std::string& note, const std::vector<RunResult>& repeats) {
  const auto over = [&](double RunResult::*field) {
    std::vector<double> values;
    for (const RunResult& r : repeats) values.push_back(r.*field);
    return values;
  };
  const auto average = [&](double RunResult::*field) { return finite_or_null(mean(over(field))); };
  double seconds = 0;
  for (const RunResult& r : repeats) seconds += r.seconds;
  return {{"name", spec.name},
          {"weights", spec.weights},
          {"recipe", spec.recipe},
          {"scope", spec.scope},
          {"loss", average(&RunResult::loss)},
          {"eval_loss", average(&RunResult::eval_loss)},
          {"delta_loss", nullptr},
          {"loss_spread", spread(over(&RunResult::loss))},
          {"losses", over(&RunResult::loss)},
          {"tokens_per_s", average(&RunResult::tokens_per_s)},
          {"mfu", average(&RunResult::mfu)},
          {"nanogpt_legacy_v1", average(&RunResult::nanogpt_legacy_v1)},
          {"combined_formula_v2", average(&RunResult::combined_formula_v2)},
          {"component_summation_v2025", average(&RunResult::component_summation_v2025)},
          {"memory_pct", repeats.front().memory_pct},
          {"path", repeats.front().path},
          {"seconds", seconds},
          {"dir", spec.dir},
          {"note", note}};
}

// delta_loss of every row whose baseline has ended.
void fill_deltas(Json& rows) {
  for (Json& row : rows)
    for (const Json& base : rows)
      if (base["scope"] == "none" && base["weights"] == row["weights"] && base["loss"].is_number() &&
          row["loss"].is_number())
        row["delta_loss"] = row["loss"].get<double>() - base["loss"].get<double>();
}

// Datasets by seed: packing and order are seeded.
class Datasets {
 public:
  Datasets(const DataConfig& config, const ProgressHook& reading) : config_(config), reading_(reading) {}
  const Dataset& of(int64_t seed) {
    auto found = sets_.find(seed);
    if (found == sets_.end())
      found = sets_
                  .emplace(seed, std::make_unique<Dataset>(
                                     Dataset::load(config_, static_cast<uint64_t>(seed), {.progress = reading_})))
                  .first;
    return *found->second;
  }

 private:
  DataConfig config_;
  ProgressHook reading_;
  std::map<int64_t, std::unique_ptr<Dataset>> sets_;
};

std::string text_of(const Json& json, const char* key, const std::string& path) {
  const Json& value = member(json, key, path);
  if (!value.is_string()) fail(Exit::kInput, "{}: {} is {}, expected text", path, key, value.type_name());
  return value.get<std::string>();
}

// Rows on changed data cannot stand beside the ones that have ended.
void refuse_changed_data(const Json& before, const Dataset& data, const std::string& path) {
  const Json& files = member(member(before, "data", path), "files", path);
  const std::vector<SourceFile>& now = data.report().files;
  bool same = files.size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i) same = files[i].value("sha256", "") == now[i].sha256;
  if (!same)
    fail(Exit::kUsage, "{}: its rows were trained on {} of another content than now; --restart trains anew", path,
         now.empty() ? "data" : now.front().path);
}

// The peak that the rows before were held against.
MachineRates recorded_rates(const Json& json, const std::string& path) {
  const Json& peak = member(json, "peak", path);
  MachineRates rates{.bf16_gflops = member(peak, "flops", path).get<double>() * 1e-9,
                     .method = member(peak, "method", path).get<std::string>()};
  if (const Json& machine = member(json, "machine", path); machine.contains("gemm_gflops")) {
    const Json& measured = machine["gemm_gflops"];
    rates.bf16_gflops = member(measured, "bf16", path).get<double>();
    rates.f32_gflops = member(measured, "f32", path).get<double>();
  }
  return rates;
}

std::string recorded_device(const Json& json, const std::string& path) {
  const Json& machine = member(json, "machine", path);
  return machine.contains("gpu") ? member(machine["gpu"], "name", path).get<std::string>() : "the CPU";
}

// Rows of one comparison are trained on one kind of device.
void refuse_other_device(const Json& before, const Device* device, const std::string& path) {
  const std::string was = recorded_device(before, path), is = device ? device->info().name : "the CPU";
  if (was != is)
    fail(Exit::kUsage, "{}: its rows were trained on {}, device.name takes {} here; --restart trains anew", path, was,
         is);
}

void refuse_other_config(const TrainConfig& config, const std::string& recorded, const std::string& folder) {
  config.refuse_other(recorded, folder + ": holds a comparison");
}

// Each row that trains replaces its folder, so that the next one would start from other weights.
void refuse_own_init(const TrainConfig& config) {
  if (config.model_init.empty()) return;
  const auto real = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path found = std::filesystem::weakly_canonical(path, error);
    return error ? path : found.string();
  };
  if ((real(config.model_init) + "/").starts_with(real(join_path(config.run.folder(), "rows")) + "/"))
    fail(Exit::kUsage, "model.init: {} lies in the rows of this comparison, which it replaces; copy it elsewhere",
         config.model_init);
}

// What compare.json at `path` holds of the rows, null where it is not there.
struct Begun {
  Json json;
  size_t ended = 0;  // of `specs`
};
Begun begun(const std::string& path, const std::vector<CompareRowSpec>& specs, const TrainConfig& config) {
  if (!exists(path)) return {};
  Begun begun{.json = read_json(path)};
  refuse_other_config(config, text_of(begun.json, "config", path), std::filesystem::path(path).parent_path().string());
  const Json& rows = member(begun.json, "rows", path);
  if (!rows.is_array()) fail(Exit::kInput, "{}: rows is not a list", path);
  for (const CompareRowSpec& spec : specs) begun.ended += find_row(rows, spec.name) != nullptr;
  return begun;
}

// Names in rows/ that the rows and their repeats train into.
std::vector<std::string> row_folders(const TrainConfig& config, const std::vector<CompareRowSpec>& specs) {
  std::vector<std::string> names;
  for (const CompareRowSpec& spec : specs)
    for (int64_t repeat = 0; repeat < config.compare.seeds; ++repeat)
      names.push_back(std::filesystem::path(row_config(config, spec, repeat).run.dir).filename().string());
  return names;
}

// A row's checkpoints are for going on inside it. `tell`, which may be empty, hears of its lock.
void drop_checkpoints(const std::string& row, const Sink& tell) {
  if (!exists(join_path(row, CheckpointStore::kFolder))) return;
  RunFolder folder(row, RunFolder::Kind::kRun);
  if (tell && !folder.lock_note().empty()) tell(Warning{folder.lock_note()});
  folder.drop_checkpoints();
}

void drop_row_checkpoints(const TrainConfig& config, const CompareRowSpec& spec, const Sink& tell) {
  for (int64_t repeat = 0; repeat < config.compare.seeds; ++repeat)
    drop_checkpoints(row_config(config, spec, repeat).run.dir, tell);
}

}  // namespace

std::vector<CompareRowSpec> compare_rows(const TrainConfig& config) {
  std::vector<CompareRowSpec> rows;
  const auto add = [&](const std::string& weights, const std::string& recipe, const std::string& scope) {
    CompareRowSpec row{.weights = weights, .recipe = recipe, .scope = scope};
    row.name =
        scope == "none" ? fmt::format("{}-{}", weights, recipe) : fmt::format("{}-{}-{}", weights, recipe, scope);
    row.dir = fmt::format("rows/{:02}-{}", rows.size() + 1, row.name);
    rows.push_back(row);
  };
  for (const std::string& weights : config.compare.weights) add(weights, baseline_recipe(), "none");
  for (const std::string& scope : config.compare.scopes)
    for (const std::string& recipe : config.precision.recipes)
      for (const std::string& weights : config.compare.weights) add(weights, recipe, scope);
  return rows;
}

TrainConfig row_config(const TrainConfig& config, const CompareRowSpec& row, int64_t repeat) {
  TrainConfig c = config;
  c.precision.weights = row.weights;
  c.precision.recipe = row.recipe;
  c.precision.scope = row.scope == "none" ? scope_names().front() : row.scope;
  c.run.seed += repeat;
  c.run.name = row.name;
  c.train.save_weights = config.compare.save_weights;
  c.run.dir = join_path(config.run.folder(), row.dir);
  if (repeat > 0) c.run.dir += fmt::format("-seed{}", c.run.seed);
  return c;
}

bool run_compare(const TrainConfig& config, bool restart, const CompareHooks& hooks) {
  const std::vector<CompareRowSpec> specs = compare_rows(config);
  config.refuse_unread(true);
  refuse_own_init(config);
  const std::string identity = config.identity();
  const std::string path = join_path(config.run.folder(), "compare.json");
  if (!restart && begun(path, specs, config).ended == specs.size()) return false;
  RunFolder folder(config.run.folder(), RunFolder::Kind::kComparison, identity);
  // Again: this process has the lock from here on.
  const Begun so_far = restart ? Begun{} : begun(path, specs, config);
  const std::string config_path = folder.file("config.yaml");
  if (!restart && exists(config_path)) refuse_other_config(config, read_text(config_path), folder.path());
  if (so_far.ended == specs.size()) return false;
  const Json& before = so_far.json;
  const bool goes_on = !before.is_null();
  Json rows = goes_on ? member(before, "rows", path) : Json::array();

  Datasets data(config.data, hooks.reading);
  // Every row is checked before the first one trains.
  const Dataset& first_data = data.of(config.run.seed);
  if (goes_on) refuse_changed_data(before, first_data, path);
  Device* const device = hooks.device ? hooks.device() : nullptr;
  if (goes_on) refuse_other_device(before, device, path);
  for (const CompareRowSpec& spec : specs)
    in_context(spec.name, [&] { Trainer(row_config(config, spec, 0), first_data, {1, 1}, device); });
  const MachineRates rates = goes_on ? recorded_rates(before, path) : measure_rates(device);
  // The same GEMM algorithms and attention plans in every row, those of an earlier start too.
  if (goes_on && device && before.contains("gemm"))
    device->set_gemm_choices(before["gemm"].get<std::vector<std::string>>());
  if (goes_on && device && before.contains("attention"))
    device->set_attention_plans(before["attention"].get<std::vector<std::string>>());
  if (restart) {
    folder.begin(identity);
    folder.drop_rows(row_folders(config, specs));
    for (const std::string& name : row_folders(config, specs))
      drop_checkpoints(join_path(join_path(config.run.folder(), "rows"), name), hooks.train.events);
  } else {
    folder.go_on(identity);
  }
  if (hooks.train.events && !folder.lock_note().empty()) hooks.train.events(Warning{folder.lock_note()});
  write_atomic(config_path, identity);

  for (size_t i = 0; i < specs.size(); ++i) {
    const CompareRowSpec& spec = specs[i];
    const bool done = find_row(rows, spec.name) != nullptr;
    if (hooks.row_begins) hooks.row_begins(i, specs.size(), spec, done);
    if (done) {
      drop_row_checkpoints(config, spec, hooks.train.events);
      continue;
    }
    std::vector<RunResult> repeats;
    Json info;
    std::string note;
    RunHooks row_hooks = hooks;
    row_hooks.started = [&](Trainer& trainer, const Dataset& rows_of, const MachineRates& against) {
      if (info.is_null()) info = trainer.info(), note = trainer.rules_note();
      if (hooks.started) hooks.started(trainer, rows_of, against);
    };
    for (int64_t repeat = 0; repeat < config.compare.seeds; ++repeat) {
      const TrainConfig c = row_config(config, spec, repeat);
      repeats.push_back(in_context(spec.name, [&] {
        RunFolder row(c.run.dir, RunFolder::Kind::kRun);
        const std::optional<ResumePoint> point = ResumePoint::find(c, {});
        if (point) point->expect_device(device);
        return train_into(row, c, point, data.of(c.run.seed), rates, device, row_hooks);
      }));
    }
    rows.push_back(row_json(spec, note, repeats));
    fill_deltas(rows);
    Json seeds = Json::array();
    for (int64_t repeat = 0; repeat < config.compare.seeds; ++repeat) seeds.push_back(config.run.seed + repeat);
    Json out = {{"version", kVersion},
                {"commit", commit()},
                {"config", identity},
                {"machine", info["machine"]},
                {"peak", info["peak"]},
                {"flops_per_token", info["flops_per_token"]},
                {"data", info["data"]},
                {"model", info["model"]},
                {"batch", info["batch"]},
                {"steps", info["steps"]},
                {"seeds", seeds},
                {"baseline", fmt::format("{} row of the same weights", baseline_recipe())},
                {"rows_planned", specs.size()},
                {"rows", rows}};
    if (device) {
      out["gemm"] = device->gemm_choices();
      out["attention"] = device->attention_plans();
    }
    folder.expect_held();
    write_atomic(path, out.dump(2) + "\n");
    drop_row_checkpoints(config, spec, hooks.train.events);
    if (hooks.row_ended) hooks.row_ended();
  }
  return true;
}

}  // namespace mantissa
