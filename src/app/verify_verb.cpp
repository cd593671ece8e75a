// mantissa verify PATH: every rule that a file or folder has to keep; exit 3 at the first that it breaks.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/flags.h"
#include "app/say.h"
#include "app/verbs.h"
#include "app/verify_model.h"
#include "base/file.h"
#include "base/units.h"
#include "data/mds/verify.h"
#include "report/check_record.h"
#include "report/run_reader.h"
#include "train/checkpoint/store.h"
#include "train/checkpoint_model.h"
#include "train/config.h"

namespace mantissa {
namespace {

void verify_shards(const std::string& folder) {
  const mds::VerifyReport report = mds::verify(folder);
  for (const std::string& note : report.notes) say("  note: {}\n", note);
  for (size_t i = 1; i < report.problems.size(); ++i) say("  also: {}\n", report.problems[i]);
  if (!report.problems.empty()) fail(Exit::kInput, "{}", report.problems.front());
  verified("shards",
           fmt::format("{} MDS shards, {} samples, {}, {} hashes computed", report.shards, grouped(report.samples),
                       bytes_text(static_cast<double>(report.bytes)), report.hashes));
}

TrainConfig verify_config(const std::string& folder) {
  TrainConfig config;
  try {
    config::Source::from_file(join_path(folder, "config.yaml"), {}).read([&config](config::Fields& f) {
      config.describe(f);
    });
  } catch (const Error& error) {
    throw Error(Exit::kInput, error.what());  // here the config is what is checked
  }
  verified("config", "config.yaml reads back");
  return config;
}

void verify_checkpoint(const Checkpoint& checkpoint) {
  checkpoint.verify();
  std::set<std::string> tensors;
  for (const CheckpointPiece& piece : checkpoint.manifest().pieces) tensors.insert(piece.tensor);
  verified("state", fmt::format("checkpoint of step {}: {} tensors in {} files, {}, every byte as it was written",
                                checkpoint.step(), tensors.size(), checkpoint.manifest().files.size(),
                                bytes_text(static_cast<double>(checkpoint.bytes()))));
}

report::Run verify_run(const std::string& folder) {
  report::Run run = report::read_run(folder);
  report::check_run(run);
  const TrainConfig config = verify_config(folder);
  const report::Metrics& metrics = run.metrics;
  verified("run", fmt::format("run.json; {} steps, {} evaluations in metrics.jsonl; {}", metrics.steps.size(),
                              metrics.evals.size(),
                              run.result.is_null() ? "no result.json: it has not finished"
                                                   : "result.json, its losses those of metrics.jsonl"));
  if (metrics.torn) say("  note: the last line of metrics.jsonl has no end\n");
  const std::string model = join_path(folder, "model");
  if (exists(model))
    verify_model(model);
  else if (!config.train.save_weights)
    verified("weights", "none kept (train.save_weights: false)");
  else if (run.result.is_null())
    verified("weights", "none: a run keeps them at its end");
  else
    fail(Exit::kInput,
         "{}: not there, and config.yaml says that the finished run kept its weights (train.save_weights)", model);
  const CheckpointStore store(join_path(folder, CheckpointStore::kFolder));
  for (const int64_t step : store.steps()) verify_checkpoint(Checkpoint::open(store.place(step)));
  return run;
}

// Folders of `folder` that hold a file of this name, in order.
std::vector<std::string> folders_with(const std::string& folder, const char* name) {
  std::vector<std::string> found;
  std::error_code reason;
  for (std::filesystem::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason))
    if (const std::string path = at->path().string(); is_directory(path) && exists(join_path(path, name)))
      found.push_back(path);
  if (reason) fail(Exit::kInput, "{}: cannot be listed: {}", folder, reason.message());
  std::sort(found.begin(), found.end());
  return found;
}

void verify_comparison(const std::string& folder) {
  const report::CompareResult result = report::read_compare(folder);
  report::check_comparison(result);
  verify_config(folder);
  verified("rows", fmt::format("{} of {} in compare.json", result.ended(), result.planned));
  std::set<std::string> seen;
  for (size_t i = 0; i < result.rows.size(); ++i)
    for (size_t repeat = 0; result.rows[i].ended() && repeat < report::repeats_of(result.rows[i]); ++repeat) {
      const std::string row = report::seed_folder(result, result.rows[i], repeat).string();
      say("{}\n", row);
      report::check_row(result, i, repeat, verify_run(row));
      seen.insert(row);
    }
  const std::string rows = join_path(folder, "rows");
  if (!is_directory(rows)) return;
  for (const std::string& row : folders_with(rows, "run.json")) {
    if (seen.count(row) > 0) continue;
    say("{} (not in compare.json: the row has not ended)\n", row);
    verify_run(row);
  }
}

void verify_folder(const std::string& path) {
  const auto has = [&path](const char* name) { return exists(join_path(path, name)); };
  if (has(Manifest::kName) && !has("config.json")) return verify_checkpoint(Checkpoint::open(path));
  if (has("compare.json")) return verify_comparison(path);
  if (has("run.json")) return static_cast<void>(verify_run(path));
  if (has("index.json")) return verify_shards(path);
  const std::vector<std::string> splits = folders_with(path, "index.json");  // of a prepared data set
  for (const std::string& split : splits) {
    say("{}\n", split);
    verify_shards(split);
  }
  if (!splits.empty()) return;
  if (has("tokenizer.json") && !has("config.json")) return verify_tokenizer(path);
  verify_model(path);
}

}  // namespace

int verify_verb(const std::vector<std::string>& args) {
  CommandLine command(
      "Checks a model folder, a safetensors file, a tokenizer, MDS shards, a run, its checkpoints or a comparison; "
      "exit 3 "
      "at the first rule that is broken.",
      "verify");
  std::string path;
  command.option("path", path, "folder or file").required();
  if (!command.parse(args)) return 0;
  if (!exists(path) && !names_checkpoint(path)) fail(Exit::kInput, "{}: not there", path);
  if (names_checkpoint(path))
    verify_checkpoint(open_checkpoint(path));
  else if (is_directory(path))
    verify_folder(path);
  else if (path.ends_with(".json"))
    verify_tokenizer(path);
  else
    verify_tensors(path);
  say("{:<10}{}\n", "ok", path);
  return 0;
}

}  // namespace mantissa
