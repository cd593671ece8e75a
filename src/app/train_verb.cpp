// mantissa train CONFIG: one run.
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/flags.h"
#include "app/read_config.h"
#include "app/read_progress.h"
#include "app/run_console.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/units.h"
#include "report/html.h"

namespace mantissa {
namespace {

// Where each line is kept, a line each log.every steps; a terminal rewrites one.
bool shows_step(const Console& console, const TrainConfig& config, const StepReport& r) {
  return console.interactive() || r.step == 1 || r.step == r.steps || r.step % config.log.every == 0;
}

// NaN where the run's loss was not finite, which JSON says as null.
double recorded_loss(const std::string& path) {
  const Json result = read_json(path);
  const Json& loss = member(result, "loss", path);
  if (!loss.is_number() && !loss.is_null())
    fail(Exit::kInput, "{}: loss is {}, expected a number", path, loss.type_name());
  return loss.is_number() ? loss.get<double>() : NAN;
}

// Whether the folder holds this run, finished; then it says so.
bool told_as_finished(const std::string& folder, const TrainConfig& config, Console& console) {
  const std::string result = join_path(folder, "result.json");
  if (!exists(result)) return false;
  config.refuse_other(read_text(join_path(folder, "config.yaml")), folder + ": holds a finished run");
  console.line(
      fmt::format("{} holds a finished run: loss {:.4f}; --restart trains anew", folder, recorded_loss(result)));
  return true;
}

}  // namespace

int train_verb(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  CLI::App app("One training run. Any key of the config can follow as --section.key=value.", "train");
  std::string path;
  bool print_config = false, restart = false;
  app.add_option("config", path, "YAML file")->required();
  app.add_flag("--print-config", print_config, "print every value and where it came from, then stop");
  app.add_flag("--restart", restart, "train anew although the folder holds a finished run");
  if (!parse_flags(app, args)) return 0;
  const TrainConfig config = read_train_config(path, overrides, {.print = print_config});
  if (print_config) return 0;

  Console console(!config.log.console);
  const std::string folder = config.run.folder();
  config.refuse_unread(false);
  if (exists(join_path(folder, "compare.json")))
    fail(Exit::kUsage, "{}: holds a comparison; give another run.dir", folder);
  if (!restart && told_as_finished(folder, config, console)) return 0;
  catch_stop_signals();
  RunFolder run_folder(folder, RunFolder::Kind::kRun);
  // Another process may have ended it before this one had the lock.
  if (!restart && told_as_finished(folder, config, console)) return 0;
  const ChosenDevice device = choose_device(config.device, config.recipes(false));
  ReadProgress progress(console);
  const Dataset data =
      Dataset::load(config.data, static_cast<uint64_t>(config.run.seed), {.progress = progress.hook()});
  Trainer(config, data, {1, 1}, device.gpu.get());  // checked before the rates are measured
  const MachineRates rates = measure_rates(device.gpu.get());
  Trainer trainer(config, data, rates, device.gpu.get());
  print_machine(console, rates, device);
  print_run(console, trainer, config);
  print_data(console, data, config);
  const TrainHooks hooks{.clock = process_seconds,
                         .loaded =
                             [&](int64_t bytes, double seconds) {
                               const auto size = static_cast<double>(bytes);
                               console.line(fmt::format("weights   {} of {} in {:.2f} s: {:.2f} GB/s", bytes_text(size),
                                                        config.model_init, seconds, 1e-9 * size / seconds));
                             },
                         .started =
                             [&](double seconds) {
                               if (device.gpu)
                                 console.line(fmt::format("started   {:.1f} s: weights, plans, graphs", seconds));
                             },
                         .stepped =
                             [&](double seconds) {
                               if (device.gpu) console.line(fmt::format("          {:.1f} s: the first step", seconds));
                             },
                         .step =
                             [&](const StepReport& r) {
                               if (shows_step(console, config, r)) console.status(step_line(r));
                             },
                         .evaluation =
                             [&](const EvalReport& r) {
                               console.line(fmt::format("eval at step {}: loss {:.4f}, perplexity {:.2f}", r.step,
                                                        r.loss, std::exp(r.loss)));
                             },
                         .sample = [&](const SampleReport& r) { console.line(sample_line(r)); },
                         .warning = [&](const std::string& text) { console.warn(text); },
                         .stop = [] { return stop_requested(); }};
  const RunResult result = trainer.run(run_folder, hooks);
  console.end_status();
  report::write_report({folder}, join_path(folder, "report.html"));
  const std::string eval =
      data.rows(Split::kValidation) > 0 ? fmt::format("eval {:.4f}", result.eval_loss) : std::string("no evaluation");
  console.line(fmt::format("done      loss {:.4f} (mean of the last tenth) · {} · {} tok/s · {} · {}", result.loss,
                           eval, grouped(static_cast<int64_t>(result.tokens_per_s)),
                           mfu_text(result.mfu, rates, device), duration_text(result.seconds)));
  if (device.gpu)
    console.line(fmt::format("memory    {} planned · {} measured at the most",
                             bytes_text(static_cast<double>(result.memory_planned_bytes)),
                             bytes_text(static_cast<double>(result.memory_measured_bytes))));
  if (!result.model.empty()) console.line(fmt::format("weights   {}", result.model));
  console.line(fmt::format("report    {}", join_path(folder, "report.html")));
  console.flush();
  return 0;
}

}  // namespace mantissa
