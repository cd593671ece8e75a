// mantissa compare CONFIG: the same run under several precision settings, then a table and a report.
#include "app/flags.h"
#include "app/read_config.h"
#include "app/read_progress.h"
#include "app/run_console.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/signal.h"
#include "base/units.h"
#include "report/html.h"
#include "report/table.h"
#include "train/compare_pace.h"

namespace mantissa {
namespace {

// The result itself, which log.console does not hold back.
void print_table(Console& console, const std::string& folder) {
  console.end_status();
  const report::TableStyle style{.width = console.interactive() ? console.width() : 120, .color = console.color()};
  fmt::print("{}", report::render_compare_table(report::read_compare(folder), style));
}

// The columns of the rows that are printed as they end.
constexpr const char* kRow = "{:>5}  {:<8} {:<15} {:<19} {:>8} {:>8} {:>9} {:>8}  {}";

void print_row_head(Console& console) {
  console.line(fmt::format(kRow, "row", "weights", "recipe", "scope", "loss", "Δ loss", "tok/s", "took", "left"));
}

// One line for a row that has ended, printed while the others go on. `left`: seconds.
void print_row(Console& console, const report::CompareRow& row, size_t index, size_t count, double left) {
  const bool baseline = row.baseline();
  console.line(
      fmt::format(kRow, fmt::format("{}/{}", index + 1, count), row.weights, row.recipe, baseline ? "–" : row.scope,
                  report::fixed(row.loss, 4), baseline ? "–" : report::fixed(row.delta_loss, 4, true),
                  grouped(static_cast<int64_t>(row.tokens_per_s.value_or(0))), duration_text(row.seconds.value_or(0)),
                  index + 1 == count ? "" : "about " + duration_text(left)));
  if (!row.note.empty()) console.line("       " + row.note);
}

}  // namespace

int compare_verb(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  CommandLine command(
      "The same run under several precision settings. Any key of the config can follow as --section.key=value.",
      "compare");
  std::string path;
  bool print_config = false, restart = false;
  command.option("config", path, "YAML file").required();
  command.flag("--print-config", print_config, "print every value and where it came from, then stop");
  command.flag("--restart", restart, "train every row anew");
  if (!command.parse(args)) return 0;
  const TrainConfig config = read_train_config(path, overrides, {.print = print_config});
  if (print_config) return 0;

  Console console(!config.log.console);
  catch_stop_signals();
  const std::string folder = config.run.folder();
  const std::string html = join_path(folder, "report.html");
  const std::vector<CompareRowSpec> rows = compare_rows(config);
  const size_t count = rows.size();
  size_t current = 0;
  CompareRowSpec spec;
  ComparePace pace;
  bool head = false;
  CompareHooks hooks;
  ChosenDevice device;
  hooks.device = [&] {
    device = choose_device(config.device, config.recipes(true));
    return device.gpu.get();
  };
  hooks.row_begins = [&](size_t index, size_t, const CompareRowSpec& row, bool done) {
    current = index;
    spec = row;
    if (done) console.line(fmt::format("{:>2}/{}  {} is there already", index + 1, count, row.name));
  };
  hooks.row_ended = [&] {
    const report::CompareResult result = report::read_compare(folder);
    const report::CompareRow& row = result.rows.back();
    pace.ended(current, row.seconds.value_or(0));
    print_row(console, row, current, count, pace.left(current + 1, count).value_or(NAN));
  };
  hooks.started = [&](Trainer& trainer, const Dataset& data, const MachineRates& rates) {
    if (head) return;
    head = true;
    print_machine(console, rates, device);
    print_run(console, trainer, row_config(config, spec, 0));  // the first row of this start
    print_data(console, data, config);
    console.line(fmt::format("compare   {} rows of {} tokens, the same seed, data and order in each · {}", count,
                             grouped(trainer.steps() * config.batch.tokens), folder));
    if (console.interactive()) console.status("time      a few steps of every recipe and scope are timed");
    if (!device.gpu && config.log.console) pace.measure(config, rows, current, data, [] { return stop_requested(); });
    if (console.interactive()) console.status("");
    if (const auto seconds = pace.left(current, count))
      console.line(fmt::format("time      about {} for {} rows, by a few steps of each recipe and scope",
                               duration_text(*seconds), count - current));
    print_row_head(console);
  };
  ReadProgress progress(console);
  hooks.reading = progress.hook();
  hooks.train.events = [&](const Event& event) {
    std::visit(On{[&](const StepReport& r) {
                    // A file would fill with steps; there the rows alone are told.
                    if (console.interactive())
                      console.status(fmt::format("{:>2}/{}  {}  {}", current + 1, count, spec.name, step_line(r)));
                  },
                  [&](const Warning& w) { console.warn(spec.name.empty() ? w.text : spec.name + ": " + w.text); },
                  [](const auto&) {}},
               event);
  };
  hooks.train.stop = [] { return stop_requested(); };

  bool trained = false;
  try {
    trained = run_compare(config, restart, hooks);
  } catch (const Error& error) {
    if (error.code() == Exit::kInterrupted && head) {
      console.end_status();
      console.line(fmt::format("stopped: {} of {} rows have ended; the same command goes on with row {}", current,
                               count, current + 1));
    }
    throw;
  }
  if (!trained) console.line(fmt::format("{}: every row was there already; --restart trains anew", folder));
  report::write_report({folder}, html);
  console.line("");
  print_table(console, folder);
  console.line(fmt::format("report    {}", html));
  console.flush();
  return 0;
}

}  // namespace mantissa
