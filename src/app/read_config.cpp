#include "app/read_config.h"

#include <filesystem>

#include "app/say.h"
#include "base/config_difference.h"
#include "base/console.h"
#include "base/error.h"
#include "base/file.h"
#include "data/tokenizer/tokenizer.h"
#include "model/hf/checkpoint.h"
#include "train/checkpoint_model.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

std::string yaml_of(ModelConfig model) {
  return config::dump([&model](config::Fields& f) { model.describe(f); });
}

// The model of the folder, to which every size that the config gives must agree.
ModelConfig model_of_folder(const TrainConfig& config, const config::Source& source) {
  const ModelConfig folder = read_hf_config(config.init_folder());
  TrainConfig overlaid;
  overlaid.model = folder;
  source.read([&overlaid](config::Fields& f) { overlaid.describe(f); });
  overlaid.model.resolve();
  if (overlaid.model == folder) return folder;
  const config::Difference d = config::first_difference(yaml_of(overlaid.model), yaml_of(folder));
  const std::string origin = source.origin("model." + d.key);
  fail(Exit::kUsage, "{}model.{}: {}, but {} has {}", origin.empty() ? "" : origin + ": ", d.key, d.first,
       config.init_files ? config.model_init : join_path(config.model_init, "config.json"), d.second);
}

// Paths are those of the working directory. One that is not there but beside the config says so.
void explain_relative_paths(const TrainConfig& config, const config::Source& source, const std::string& config_path,
                            bool planning) {
  const fs::path beside = fs::path(config_path).parent_path();
  const std::pair<const char*, const std::string*> paths[] = {{"data.train", &config.data.train},
                                                              {"data.validation", &config.data.validation},
                                                              {"data.tokenizer", &config.data.tokenizer},
                                                              {"model.init", &config.model_init}};
  for (const auto& [key, path] : paths) {
    if (path == &config.data.tokenizer && *path == Tokenizer::kBytes) continue;  // no file
    if (path == &config.model_init && names_checkpoint(*path)) continue;
    if (path->empty() || fs::path(*path).is_absolute() || beside.empty() || exists(*path)) continue;
    const std::string there = (beside / *path).string();
    if (!exists(there)) continue;
    const std::string text = fmt::format(
        "{}: {}: {} is not there, but {} is; paths are relative to the working directory, not to the config",
        source.origin(key), key, *path, there);
    if (!planning) fail(Exit::kInput, "{}", text);
    say("note      {}\n", text);
  }
}

// A length that is given twice: which one counts.
void say_what_overrides_epochs(const TrainConfig& config, const config::Source& source) {
  const char* key = config.train.steps > 0 ? "train.steps" : config.train.tokens > 0 ? "train.tokens" : nullptr;
  if (key == nullptr || source.origin("train.epochs").empty()) return;
  say(stderr, "notice: {}: {} counts, train.epochs ({}) does not\n", source.origin(key), key, config.train.epochs);
}

}  // namespace

TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides,
                              const ReadOptions& options) {
  TrainConfig config;
  const auto describe = [&config](config::Fields& f) { config.describe(f); };
  const config::Source source = config::Source::from_file(path, overrides);
  source.read(describe);
  explain_relative_paths(config, source, path, options.planning);
  if (names_checkpoint(config.model_init))
    config.init_files =
        in_context("model.init", [&] { return std::make_shared<const ModelFolder>(config.model_init); });
  if (options.planning && !config.model_init.empty() && !exists(join_path(config.init_folder(), "config.json"))) {
    if (yaml_of(config.model) == yaml_of(ModelConfig{}))
      fail(Exit::kUsage, "model.init: {} is not on this disk; give the model's sizes in the config to plan without it",
           config.model_init);
    say("note      model.init: {} is not on this disk; planned from the config's sizes\n", config.model_init);
  } else if (!config.model_init.empty()) {
    config.model = model_of_folder(config, source);
  }
  if (options.print) {
    const std::string yaml = config::dump(describe, &source);
    fmt::print("{}", is_terminal(stdout) ? displayed(yaml, Breaks::kKeep) : yaml);
  }
  say_what_overrides_epochs(config, source);
  config.resolve();
  return config;
}

}  // namespace mantissa
