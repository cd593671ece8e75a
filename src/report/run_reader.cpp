#include "report/run_reader.h"

#include <cmath>
#include <map>
#include <set>
#include <unordered_set>

#include "base/file.h"
#include "report/json_fields.h"
#include "report/page_data.h"

namespace mantissa::report {
namespace fs = std::filesystem;
namespace {

// Removes the lines of `step` and later: a resumed run writes them again.
template <class Line>
int64_t rewind_to(std::vector<Line>& lines, int64_t step) {
  const size_t before = lines.size();
  while (!lines.empty() && lines.back().step >= step) lines.pop_back();
  return static_cast<int64_t>(before - lines.size());
}

double share(const JsonFields& fields, std::string_view key, const std::string& where) {
  const double value = fields.required(key);
  if (!(value >= 0 && value <= 1))
    fail(Exit::kInput, "{}: {}: {} found, expected a share from 0 to 1", where, key, value);
  return value;
}

void read_quantization(const Json& list, int64_t step, const std::string& where, Metrics& metrics) {
  metrics.rewound += rewind_to(metrics.quantization, step);
  for (const Json& item : list) {
    const JsonFields fields(item, where);
    fields.collect_unknown({"layer", "tensor", "amax", "scale", "snr_db", "saturated", "flushed"}, metrics.unknown);
    const std::string tensor = fields.required_text("tensor");
    if (tensor != "input" && tensor != "weight" && tensor != "grad")
      fail(Exit::kInput, "{}: tensor: {} found, expected input, weight or grad", where, printable(tensor, 60));
    metrics.quantization.push_back({.step = step,
                                    .layer = fields.required_text("layer"),
                                    .tensor = tensor,
                                    .amax = fields.number("amax").value_or(0),
                                    .scale = fields.number("scale").value_or(0),
                                    .snr_db = fields.number("snr_db"),
                                    .saturated = share(fields, "saturated", where),
                                    .flushed = share(fields, "flushed", where)});
  }
}

void read_line(const Json& json, const std::string& where, Metrics& metrics) {
  const JsonFields fields(json, where);
  const int64_t step = fields.integer("step");
  if (step < 0) fail(Exit::kInput, "{}: step: {} found, expected 0 or more", where, step);
  fields.collect_unknown({"step", "tokens", "seconds", "loss", "grad_norm", "lr", "tokens_per_s", "mfu", "data_wait_s",
                          "eval_loss", "quantization"},
                         metrics.unknown);
  if (fields.has("quantization")) read_quantization(fields.list("quantization"), step, where, metrics);
  if (fields.has("eval_loss")) {
    metrics.rewound += rewind_to(metrics.evals, step);
    metrics.evals.push_back({step, fields.required("tokens"), fields.required("seconds"), fields.number("eval_loss")});
  }
  if (fields.has("loss")) {
    metrics.rewound += rewind_to(metrics.steps, step);
    metrics.steps.push_back({.step = step,
                             .tokens = fields.required("tokens"),
                             .seconds = fields.required("seconds"),
                             .loss = fields.number("loss"),
                             .grad_norm = fields.number("grad_norm"),
                             .lr = fields.number("lr"),
                             .tokens_per_s = fields.number("tokens_per_s"),
                             .mfu = fields.number("mfu"),
                             .data_wait_s = fields.number("data_wait_s")});
  }
}

std::vector<double> losses_of(const JsonFields& row) {
  std::vector<double> losses;
  if (!row.has("losses")) return losses;
  for (const Json& loss : row.list("losses")) {
    if (!loss.is_number())
      fail(Exit::kInput, "{}: losses: {} found, expected a number", row.where(), printable(loss.dump(), 60));
    losses.push_back(loss.get<double>());
  }
  return losses;
}

CompareRow parse_row(const Json& json, const std::string& where) {
  const JsonFields f(json, where);
  CompareRow row{.name = f.text("name"),
                 .weights = f.required_text("weights"),
                 .recipe = f.required_text("recipe"),
                 .scope = f.required_text("scope"),
                 .path = f.text("path"),
                 .dir = f.text("dir"),
                 .note = f.text("note"),
                 .loss = f.number("loss"),
                 .eval_loss = f.number("eval_loss"),
                 .delta_loss = f.number("delta_loss"),
                 .losses = losses_of(f),
                 .loss_spread = f.number("loss_spread"),
                 .tokens_per_s = f.number("tokens_per_s"),
                 .seconds = f.number("seconds"),
                 .mfu = f.number("mfu"),
                 .nanogpt_legacy_v1 = f.number("nanogpt_legacy_v1"),
                 .combined_formula_v2 = f.number("combined_formula_v2"),
                 .component_summation_v2025 = f.number("component_summation_v2025"),
                 .memory_pct = f.number("memory_pct")};
  if (row.ended() && row.path != "native" && row.path != "emulated")
    fail(Exit::kInput, "{}: path: \"{}\" found, expected native or emulated", where, row.path);
  const fs::path dir(row.dir);
  if (dir.is_absolute() || std::find(dir.begin(), dir.end(), "..") != dir.end())
    fail(Exit::kInput, "{}: dir: \"{}\" found, expected a folder inside the comparison", where, row.dir);
  return row;
}

// The standard deviation over seeds of each row's difference to the baseline of the same weights: both saw the same
// tokens under each seed, so what a seed moves in both cancels.
void fill_delta_spreads(std::vector<CompareRow>& rows) {
  for (CompareRow& row : rows) {
    const auto base = std::find_if(rows.begin(), rows.end(), [&](const CompareRow& other) {
      return other.scope == "none" && other.weights == row.weights;
    });
    const size_t n = row.losses.size();
    if (row.scope == "none" || base == rows.end() || n < 2 || base->losses.size() != n) continue;
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; ++i) mean += (row.losses[i] - base->losses[i]) / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) square += std::pow(row.losses[i] - base->losses[i] - mean, 2);
    row.delta_spread = std::sqrt(square / static_cast<double>(n - 1));
  }
}

// The table row of a run that belongs to no comparison: no delta, its memory from the plan.
CompareRow row_of(const Run& run) {
  CompareRow row;
  const std::string where = (run.dir / "run.json").string();
  const JsonFields info(run.info, where);
  row.name = info.text("name");
  const Json precision_json = info.value("precision");
  if (precision_json.is_object()) {
    const JsonFields precision(precision_json, where + ": precision");
    row.weights = precision.text("weights");
    row.recipe = precision.text("recipe");
    row.scope = precision.text("scope");
    row.path = precision.text("path");
    row.note = precision.text("note");
  }
  if (run.result.is_object()) {
    const JsonFields result(run.result, (run.dir / "result.json").string());
    row.loss = result.number("loss");
    row.eval_loss = result.number("eval_loss");
    row.tokens_per_s = result.number("tokens_per_s");
    row.seconds = result.number("seconds");
    row.mfu = result.number("mfu");
    row.nanogpt_legacy_v1 = result.number("nanogpt_legacy_v1");
    row.combined_formula_v2 = result.number("combined_formula_v2");
    row.component_summation_v2025 = result.number("component_summation_v2025");
    row.memory_pct = result.number("memory_pct");
    if (const std::string path = result.text("path"); !path.empty()) row.path = path;
  }
  return row;
}

void note_tolerated(const Run& run, std::vector<std::string>& notes) {
  const Metrics& m = run.metrics;
  if (m.torn) notes.push_back(run.label + ": the last line of metrics.jsonl has no end and was left out.");
  if (m.rewound)
    notes.push_back(fmt::format("{}: the run went back {} lines of metrics.jsonl (a resume); the later ones count.",
                                run.label, m.rewound));
  std::unordered_set<std::string_view> layers;
  for (const QuantLine& line : m.quantization) layers.insert(line.layer);
  if (layers.size() > kMaxQuantLayers)
    notes.push_back(fmt::format("{}: quantization errors of {} layers; the page has those of the first {}.", run.label,
                                layers.size(), kMaxQuantLayers));
  if (!m.unknown.empty()) {
    std::string keys;
    for (const std::string& key : m.unknown) keys += (keys.empty() ? "" : ", ") + key;
    notes.push_back(run.label + ": metrics.jsonl has keys that this version does not show: " + keys + ".");
  }
}

std::string unique_label(std::string label, std::set<std::string>& taken) {
  std::string candidate = label;
  for (int i = 2; !taken.insert(candidate).second; ++i) candidate = fmt::format("{} ({})", label, i);
  return candidate;
}

// The lines of a file of which one at a time is in memory; the file may grow or shrink meanwhile.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : stream_(path), chunk_(size_t{1} << 20, '\0') {}

  // False behind the last line. `whole` says whether it ended with a newline.
  bool next(std::string& line, bool& whole) {
    line.clear();
    for (;;) {
      if (at_ == end_) {
        end_ = stream_.read(chunk_);
        at_ = 0;
        if (end_ == 0) return whole = false, !line.empty();
      }
      const std::string_view rest(chunk_.data() + at_, end_ - at_);
      const size_t newline = rest.find('\n'), taken = std::min(newline, rest.size());
      if (line.size() + taken > kMaxLineBytes)
        fail(Exit::kInput, "{}:{}: a line of more than {} bytes", stream_.path(), number_ + 1, kMaxLineBytes);
      line += rest.substr(0, taken);
      at_ += taken + (newline != std::string_view::npos);
      if (newline != std::string_view::npos) return ++number_, whole = true;
    }
  }

 private:
  FileStream stream_;
  std::string chunk_;
  size_t at_ = 0, end_ = 0;
  int64_t number_ = 0;
};

// Calls read(json, where) for each line; false when the last one is cut.
template <class Read>
bool read_lines(const fs::path& file, Read&& read) {
  LineReader lines(file.string());
  std::string content;
  bool whole = false;
  for (int64_t line = 1; lines.next(content, whole); ++line) {
    if (trim(content).empty()) continue;
    const std::string where = fmt::format("{}:{}", file.string(), line);
    Json json;
    try {
      json = parse_json(content, where);
    } catch (const Error&) {
      if (whole) throw;
      return false;
    }
    read(json, where);
  }
  return true;
}

std::string row_label(const CompareRow& row) {
  std::string label = row.recipe;
  if (!row.scope.empty() && row.scope != "none") label += " · " + row.scope;
  return label + (row.weights.empty() ? "" : " · " + row.weights + " weights");
}

}  // namespace

int64_t CompareResult::ended() const {
  return std::count_if(rows.begin(), rows.end(), [](const CompareRow& row) { return row.ended(); });
}

Metrics read_metrics(const fs::path& file) {
  Metrics metrics;
  metrics.torn +=
      !read_lines(file, [&](const Json& json, const std::string& where) { read_line(json, where, metrics); });
  return metrics;
}

std::vector<SampleLine> read_samples(const fs::path& file) {
  std::vector<SampleLine> samples;
  read_lines(file, [&](const Json& json, const std::string& where) {
    const JsonFields fields(json, where);
    samples.push_back({.step = fields.integer("step"),
                       .tokens = fields.integer("tokens"),
                       .prompt = fields.text("prompt"),
                       .text = fields.text("text"),
                       .stop = fields.text("stop")});
  });
  return samples;
}

CompareResult parse_compare(const Json& json, const std::string& where) {
  const JsonFields f(json, where);
  CompareResult result;
  result.version = f.text("version");
  result.baseline = f.text("baseline");
  const Json config = f.value("config");
  result.config = config.is_string() ? config.get<std::string>() : config.is_null() ? "" : config.dump(2);
  result.machine = f.value("machine");
  result.data = f.value("data");
  result.model = f.value("model");
  result.seeds = f.value("seeds");
  if (!result.seeds.is_null())
    for (const Json& seed : f.list("seeds"))
      if (!seed.is_number_integer())
        fail(Exit::kInput, "{}: seeds: {} found, expected an integer", where, printable(seed.dump(), 60));
  const Json& rows = f.list("rows");
  if (rows.size() > kMaxRows)
    fail(Exit::kInput, "{}: rows: {} found, expected at most {}", where, rows.size(), kMaxRows);
  std::map<std::string, size_t> folders;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string place = fmt::format("{}: rows[{}]", where, i);
    result.rows.push_back(parse_row(rows[i], place));
    const std::string& dir = result.rows.back().dir;
    const auto [at, fresh] = folders.emplace(fs::path(dir).lexically_normal().string(), i);
    if (!fresh && !dir.empty()) fail(Exit::kInput, "{}: dir: {} is the folder of rows[{}] too", place, dir, at->second);
  }
  fill_delta_spreads(result.rows);
  const int64_t planned = f.has("rows_planned") ? f.integer("rows_planned") : 0;
  result.planned = std::max<int64_t>(planned, std::ssize(result.rows));
  return result;
}

CompareResult read_compare(const fs::path& dir) {
  const fs::path file = dir / "compare.json";
  CompareResult result = parse_compare(read_json(file.string(), kMaxRecordBytes), file.string());
  result.dir = dir.string();
  return result;
}

Run read_run(const fs::path& dir) {
  Run run;
  run.dir = dir;
  const auto path = [&dir](const char* name) { return (dir / name).string(); };
  run.info = read_json(path("run.json"), kMaxRecordBytes);
  if (exists(path("result.json"))) run.result = read_json(path("result.json"), kMaxRecordBytes);
  if (exists(path("config.yaml"))) run.config = read_text(path("config.yaml"), kMaxRecordBytes);
  if (exists(path("metrics.jsonl"))) run.metrics = read_metrics(path("metrics.jsonl"));
  if (exists(path("samples.jsonl"))) run.samples = read_samples(path("samples.jsonl"));
  run.row = row_of(run);
  run.label = run.row.recipe.empty() ? dir.filename().string() : row_label(run.row);
  return run;
}

ReportData read_all(const std::vector<fs::path>& dirs) {
  ReportData data;
  std::set<std::string> labels;
  int comparisons = 0;
  for (const fs::path& dir : dirs) {
    if (exists((dir / "compare.json").string())) {
      CompareResult compare = read_compare(dir);
      for (const CompareRow& row : compare.rows) {
        if (row.dir.empty() || !exists((dir / row.dir / "run.json").string())) {
          if (row.ended()) data.notes.push_back(row_label(row) + ": its run directory is missing, so it has no curve.");
          continue;
        }
        Run run = read_run(dir / row.dir);
        run.row = row;
        run.label = unique_label(row_label(row), labels);
        note_tolerated(run, data.notes);
        data.runs.push_back(std::move(run));
      }
      if (comparisons++ == 0)
        data.compare = std::move(compare);
      else
        data.notes.push_back(dir.string() + ": a second comparison; its curves are here, its table is not.");
    } else if (exists((dir / "run.json").string())) {
      Run run = read_run(dir);
      run.label = unique_label(run.row.name.empty() ? dir.filename().string() : run.row.name, labels);
      note_tolerated(run, data.notes);
      data.runs.push_back(std::move(run));
    } else {
      fail(Exit::kInput, "{}: {}; expected a directory with run.json (train) or compare.json (compare)", dir.string(),
           exists(dir.string()) ? "neither run.json nor compare.json found" : "no such directory");
    }
  }
  return data;
}

std::string row_place(const CompareResult& result, size_t row) {
  return fmt::format("{}: rows[{}]", (fs::path(result.dir) / "compare.json").string(), row);
}

fs::path seed_folder(const CompareResult& result, const CompareRow& row, size_t repeat) {
  const fs::path first = fs::path(result.dir) / row.dir;
  if (repeat == 0 || repeat >= result.seeds.size() || !result.seeds[repeat].is_number_integer()) return first;
  return first.string() + "-seed" + result.seeds[repeat].dump();
}

const Run* baseline_run(const ReportData& data, const Run& run) {
  if (run.row.baseline()) return nullptr;
  for (const Run& other : data.runs)
    if (other.row.baseline() && other.row.weights == run.row.weights) return &other;
  return nullptr;
}

}  // namespace mantissa::report
