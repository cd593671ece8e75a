#include "report/run_reader.h"

#include <set>

#include "base/file.h"
#include "report/json_fields.h"

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
    metrics.quantization.push_back({.step = step,
                                    .layer = fields.required_text("layer"),
                                    .tensor = fields.required_text("tensor"),
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

CompareRow parse_row(const Json& json, const std::string& where) {
  const JsonFields f(json, where);
  CompareRow row{.name = f.text("name"),
                 .weights = f.required_text("weights"),
                 .recipe = f.required_text("recipe"),
                 .scope = f.required_text("scope"),
                 .path = f.text("path"),
                 .dir = f.text("dir"),
                 .loss = f.number("loss"),
                 .eval_loss = f.number("eval_loss"),
                 .delta_loss = f.number("delta_loss"),
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

// Calls read(json, where) for each line; false when the last one is cut.
template <class Read>
bool read_lines(const fs::path& file, Read&& read) {
  const MappedFile mapped = MappedFile::open(file.string());
  const std::string_view text = mapped.text();
  size_t begin = 0;
  for (int64_t line = 1; begin < text.size(); ++line) {
    const size_t end = text.find('\n', begin);
    const bool last = end == std::string_view::npos;
    const std::string_view content = text.substr(begin, last ? std::string_view::npos : end - begin);
    begin = last ? text.size() : end + 1;
    if (trim(content).empty()) continue;
    const std::string where = fmt::format("{}:{}", file.string(), line);
    Json json;
    try {
      json = parse_json(content, where);
    } catch (const Error&) {
      if (!last) throw;
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
  int index = 0;
  for (const Json& row : f.list("rows"))
    result.rows.push_back(parse_row(row, fmt::format("{}: rows[{}]", where, index++)));
  const Number planned = f.number("rows_planned");
  result.planned = std::max<int64_t>(static_cast<int64_t>(planned.value_or(0)), std::ssize(result.rows));
  return result;
}

CompareResult read_compare(const fs::path& dir) {
  const fs::path file = dir / "compare.json";
  CompareResult result = parse_compare(read_json(file.string()), file.string());
  result.dir = dir.string();
  return result;
}

Run read_run(const fs::path& dir) {
  Run run;
  run.dir = dir;
  const auto path = [&dir](const char* name) { return (dir / name).string(); };
  run.info = read_json(path("run.json"));
  if (exists(path("result.json"))) run.result = read_json(path("result.json"));
  if (exists(path("config.yaml"))) run.config = read_text(path("config.yaml"));
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

const Run* baseline_run(const ReportData& data, const Run& run) {
  if (run.row.baseline()) return nullptr;
  for (const Run& other : data.runs)
    if (other.row.baseline() && other.row.weights == run.row.weights) return &other;
  return nullptr;
}

}  // namespace mantissa::report
