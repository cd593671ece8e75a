// mantissa train CONFIG: one run.
#include "app/flags.h"
#include "app/read_config.h"
#include "app/read_progress.h"
#include "app/run_console.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/units.h"
#include "report/html.h"
#include "train/run_train.h"

namespace mantissa {

int train_verb(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  CommandLine command("One training run. Any key of the config can follow as --section.key=value.", "train");
  std::string path;
  bool print_config = false;
  StartOptions start;
  command.option("config", path, "YAML file").required();
  command.flag("--print-config", print_config, "print every value and where it came from, then stop");
  command.flag("--restart", start.restart, "train anew, whatever the folder holds of this run; its checkpoints go");
  command.option("--resume", start.resume, "the checkpoint to go on from; default: the newest one of the run");
  if (!command.parse(args)) return 0;
  const TrainConfig config = read_train_config(path, overrides, {.print = print_config});
  if (print_config) return 0;

  Console console(!config.log.console);
  catch_stop_signals();
  const std::string folder = config.run.folder(), html = join_path(folder, "report.html");
  ChosenDevice device;
  RunHooks hooks;
  hooks.device = [&] {
    device = choose_device(config.device, config.recipes(false));
    return device.gpu.get();
  };
  ReadProgress progress(console);
  hooks.reading = progress.hook();
  bool evaluates = false;
  MachineRates held_against;
  hooks.started = [&](Trainer& trainer, const Dataset& data, const MachineRates& rates) {
    held_against = rates, evaluates = data.rows(Split::kValidation) > 0;
    print_machine(console, rates, device);
    print_run(console, trainer, config);
    print_data(console, data, config);
  };
  hooks.train.events = console_sink(console, config, device);
  hooks.train.clock = process_seconds;
  hooks.train.stop = [] { return stop_requested(); };
  const std::optional<RunResult> result = run_train(config, start, hooks);
  if (!result) {
    console.line(
        fmt::format("{} holds a finished run: loss {:.4f}; --restart trains anew", folder, finished_loss(folder)));
    // A start that could not write its page, the last of its files.
    if (!exists(html)) {
      report::write_report({folder}, html);
      console.line(fmt::format("report    {}", html));
    }
    return 0;
  }
  console.end_status();
  report::write_report({folder}, html);
  const std::string eval = evaluates ? fmt::format("eval {:.4f}", result->eval_loss) : std::string("no evaluation");
  console.line(fmt::format("done      loss {:.4f} (mean of the last tenth) · {} · {} tok/s · {} · {}", result->loss,
                           eval, grouped(static_cast<int64_t>(result->tokens_per_s)),
                           mfu_text(result->mfu, held_against, device), duration_text(result->seconds)));
  if (device.gpu)
    console.line(fmt::format("memory    {} planned · {} measured at the most",
                             bytes_text(static_cast<double>(result->memory_planned_bytes)),
                             bytes_text(static_cast<double>(result->memory_measured_bytes))));
  if (!result->model.empty()) console.line(fmt::format("weights   {}", result->model));
  console.line(fmt::format("report    {}", html));
  console.flush();
  return 0;
}

}  // namespace mantissa
