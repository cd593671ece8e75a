#include "report/check_record.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "report/json_fields.h"

namespace mantissa::report {
namespace {

// JSON keeps every bit of a double; a mean summed in another order may lose the last ones.
bool agree(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)}); }

std::string number_text(const Number& value) { return value ? fmt::format("{}", *value) : "null"; }

void expect_same(const Number& found, const Number& expected, const std::string& where, std::string_view of) {
  if (found.has_value() != expected.has_value() || (found && !agree(*found, *expected)))
    fail(Exit::kInput, "{}: {} found, expected {}: {}", where, number_text(found), number_text(expected), of);
}

void check_info(const JsonFields& info) {
  for (const char* key : {"version", "name"}) info.required_text(key);
  info.integer("seed");
  if (info.integer("steps") < 1) fail(Exit::kInput, "{}: steps: expected 1 or more", info.where());
  for (const char* key : {"machine", "model", "precision", "data", "batch", "flops_per_token", "peak", "memory"})
    if (info.object(key).empty()) fail(Exit::kInput, "{}: {}: is empty", info.where(), key);
  const JsonFields precision(info.object("precision"), info.where() + ": precision");
  for (const char* key : {"weights", "recipe", "scope", "path"}) precision.required_text(key);
}

// The mean that result.json gives (docs/run_folder.md): of the last tenth of the steps, those without a loss left out.
Number last_tenth(const std::vector<StepLine>& lines, int64_t steps) {
  double sum = 0, count = 0;
  for (const StepLine& line : lines)
    if (line.loss && line.step > steps - std::max<int64_t>(1, steps / 10)) sum += *line.loss, ++count;
  return count > 0 ? Number(sum / count) : Number();
}

void check_metrics(const Run& run, int64_t steps) {
  const std::string file = (run.dir / "metrics.jsonl").string();
  if (!exists(file)) fail(Exit::kInput, "{}: not there, although result.json is", file);
  const Metrics& metrics = run.metrics;
  if (metrics.torn) fail(Exit::kInput, "{}: the last line has no end, although result.json says the run ended", file);
  for (size_t i = 0; i < metrics.steps.size(); ++i)
    if (metrics.steps[i].step != static_cast<int64_t>(i) + 1)
      fail(Exit::kInput, "{}: step {} follows step {}", file, metrics.steps[i].step, i);
  if (std::ssize(metrics.steps) != steps)
    fail(Exit::kInput, "{}: {} steps found, result.json says {}", file, metrics.steps.size(), steps);
}

void check_result(const Run& run, const JsonFields& info) {
  const JsonFields result(run.result, (run.dir / "result.json").string());
  for (const char* key : {"loss", "eval_loss", "tokens_per_s", "mfu", "nanogpt_legacy_v1", "combined_formula_v2",
                          "component_summation_v2025", "memory_pct", "seconds"})
    result.expect_number_or_null(key);
  const std::string path = result.required_text("path");
  if (path != "native" && path != "emulated")
    fail(Exit::kInput, "{}: path: {} found, expected native or emulated", result.where(), printable(path, 60));
  const int64_t steps = result.integer("steps");
  result.integer("tokens");
  if (steps != info.integer("steps"))
    fail(Exit::kInput, "{}: steps: {} found, run.json says {}", result.where(), steps, info.integer("steps"));
  check_metrics(run, steps);
  expect_same(result.number("loss"), last_tenth(run.metrics.steps, steps), result.where() + ": loss",
              "the mean over the last tenth of the steps in metrics.jsonl");
  const std::vector<EvalLine>& evals = run.metrics.evals;
  expect_same(result.number("eval_loss"), evals.empty() ? Number() : evals.back().eval_loss,
              result.where() + ": eval_loss", "the last evaluation in metrics.jsonl");
}

}  // namespace

void check_run(const Run& run) {
  const JsonFields info(run.info, (run.dir / "run.json").string());
  check_info(info);
  if (!run.result.is_null()) check_result(run, info);
}

size_t repeats_of(const CompareRow& row) { return std::max<size_t>(1, row.losses.size()); }

void check_row(const CompareResult& result, size_t index, size_t repeat, const Run& run) {
  const CompareRow& row = result.rows[index];
  const std::string place = row_place(result, index);
  if (run.result.is_null())
    fail(Exit::kInput, "{}: {} has no result.json, although the row has a loss", place, run.dir.string());
  for (const auto& [key, found, expected] : {std::tuple{"weights", run.row.weights, row.weights},
                                             {"recipe", run.row.recipe, row.recipe},
                                             {"path", run.row.path, row.path}})
    if (found != expected)
      fail(Exit::kInput, "{}: {}: {} found, {} trained with {}", place, key, printable(expected, 60), run.dir.string(),
           printable(found, 60));
  expect_same(repeat < row.losses.size() ? Number(row.losses[repeat]) : row.loss, run.row.loss,
              fmt::format("{}: losses[{}]", place, repeat), (run.dir / "result.json").string());
}

void check_comparison(const CompareResult& result) {
  const std::string file = (std::filesystem::path(result.dir) / "compare.json").string();
  if (result.rows.empty()) fail(Exit::kInput, "{}: rows: none found, expected one or more", file);
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const CompareRow& row = result.rows[i];
    const std::string place = row_place(result, i);
    if (!row.ended()) continue;
    if (row.dir.empty()) fail(Exit::kInput, "{}: dir: missing, expected the folder of the row", place);
    if (!row.losses.empty() && result.seeds.size() != row.losses.size())
      fail(Exit::kInput, "{}: losses: {} found, expected one for each of {} seeds", place, row.losses.size(),
           result.seeds.size());
    for (size_t repeat = 0; repeat < repeats_of(row); ++repeat)
      if (const auto folder = seed_folder(result, row, repeat); !exists((folder / "run.json").string()))
        fail(Exit::kInput, "{}: dir: {} is not there, or has no run.json", place, folder.string());
    double mean = 0;
    for (const double loss : row.losses) mean += loss / static_cast<double>(row.losses.size());
    if (!row.losses.empty()) expect_same(row.loss, mean, place + ": loss", "the mean of losses");
    const auto base = std::find_if(result.rows.begin(), result.rows.end(), [&](const CompareRow& other) {
      return other.scope == "none" && other.weights == row.weights && other.ended();
    });
    if (base != result.rows.end())
      expect_same(row.delta_loss, *row.loss - *base->loss, place + ": delta_loss", "loss less that of the baseline");
  }
}

}  // namespace mantissa::report
