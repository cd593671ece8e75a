// mantissa verify PATH: every rule that a file or folder has to keep; exit 3 at the first that it breaks.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/flags.h"
#include "app/verbs.h"
#include "app/verify_model.h"
#include "base/file.h"
#include "base/units.h"
#include "data/mds/verify.h"
#include "report/run_reader.h"
#include "train/config.h"

namespace mantissa {
namespace {

void verify_shards(const std::string& folder) {
  const mds::VerifyReport report = mds::verify(folder);
  for (const std::string& note : report.notes) fmt::print("  note: {}\n", note);
  for (size_t i = 1; i < report.problems.size(); ++i) fmt::print("  also: {}\n", report.problems[i]);
  if (!report.problems.empty()) fail(Exit::kInput, "{}", report.problems.front());
  verified("shards",
           fmt::format("{} MDS shards, {} samples, {}, {} hashes computed", report.shards, grouped(report.samples),
                       bytes_text(static_cast<double>(report.bytes)), report.hashes));
}

void verify_config(const std::string& folder) {
  TrainConfig config;
  try {
    config::Source::from_file(join_path(folder, "config.yaml"), {}).read([&config](config::Fields& f) {
      config.describe(f);
    });
  } catch (const Error& error) {
    throw Error(Exit::kInput, error.what());  // here the config is what is checked
  }
  verified("config", "config.yaml reads back");
}

void verify_run(const std::string& folder) {
  const report::Run run = report::read_run(folder);
  verify_config(folder);
  verified("run", fmt::format("run.json; {} steps, {} evaluations in metrics.jsonl; {}", run.metrics.steps.size(),
                              run.metrics.evals.size(),
                              run.result.is_null() ? "no result.json: it has not finished" : "result.json"));
  const std::string model = join_path(folder, "model");
  if (exists(model))
    verify_model(model);
  else
    verified("weights", "none kept");
}

void verify_comparison(const std::string& folder) {
  const report::CompareResult result = report::read_compare(folder);
  verify_config(folder);
  verified("rows", fmt::format("{} of {} in compare.json", result.rows.size(), result.planned));
  std::vector<std::string> rows;
  if (is_directory(join_path(folder, "rows")))
    for (const auto& entry : std::filesystem::directory_iterator(join_path(folder, "rows")))
      if (exists(join_path(entry.path().string(), "run.json"))) rows.push_back(entry.path().string());
  std::sort(rows.begin(), rows.end());
  for (const std::string& row : rows) {
    fmt::print("{}\n", row);
    verify_run(row);
  }
}

// Folders in `folder` that hold MDS shards: the splits of a prepared data set.
std::vector<std::string> splits_of(const std::string& folder) {
  std::vector<std::string> splits;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory() && exists((entry.path() / "index.json").string())) splits.push_back(entry.path().string());
  std::sort(splits.begin(), splits.end());
  return splits;
}

void verify_folder(const std::string& path) {
  const auto has = [&path](const char* name) { return exists(join_path(path, name)); };
  if (has("compare.json")) return verify_comparison(path);
  if (has("run.json")) return verify_run(path);
  if (has("index.json")) return verify_shards(path);
  const std::vector<std::string> splits = splits_of(path);
  for (const std::string& split : splits) {
    fmt::print("{}\n", split);
    verify_shards(split);
  }
  if (!splits.empty()) return;
  if (has("tokenizer.json") && !has("config.json")) return verify_tokenizer(path);
  verify_model(path);
}

}  // namespace

int verify_verb(const std::vector<std::string>& args) {
  CLI::App app(
      "Checks a model folder, a safetensors file, a tokenizer, MDS shards, a run or a comparison; exit 3 at the first "
      "rule that is broken.",
      "verify");
  std::string path;
  app.add_option("path", path, "folder or file")->required();
  if (!parse_flags(app, args)) return 0;
  if (!exists(path)) fail(Exit::kInput, "{}: not there", path);
  if (is_directory(path))
    verify_folder(path);
  else if (path.ends_with(".json"))
    verify_tokenizer(path);
  else
    verify_tensors(path);
  fmt::print("{:<10}{}\n", "ok", path);
  return 0;
}

}  // namespace mantissa
