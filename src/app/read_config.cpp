#include "app/read_config.h"

#include "app/say.h"
#include "base/console.h"
#include "base/error.h"
#include "base/file.h"
#include "model/hf_checkpoint.h"

namespace mantissa {
namespace {

std::string yaml_of(ModelConfig model) {
  return config::dump([&model](config::Fields& f) { model.describe(f); });
}

// The first line of two dumps that differs: what each says.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  size_t begin = 0;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i)
    if (a[i] == '\n') begin = i + 1;
  const auto line = [begin](const std::string& text) { return text.substr(begin, text.find('\n', begin) - begin); };
  return {line(a), line(b)};
}

// The model of the folder, to which every size that the config gives must agree.
ModelConfig model_of_folder(const TrainConfig& config, const config::Source& source) {
  const ModelConfig folder = read_hf_config(config.model_init);
  TrainConfig overlaid;
  overlaid.model = folder;
  source.read([&overlaid](config::Fields& f) { overlaid.describe(f); });
  overlaid.model.resolve();
  if (overlaid.model == folder) return folder;
  const auto [given, found] = first_difference(yaml_of(overlaid.model), yaml_of(folder));
  const std::string key = given.substr(given.find_first_not_of(' '), given.find(':') - given.find_first_not_of(' '));
  const std::string origin = source.origin("model." + key);
  fail(Exit::kUsage, "{}model: {}, but {} has {}", origin.empty() ? "" : origin + ": ",
       given.substr(given.find_first_not_of(' ')), join_path(config.model_init, "config.json"),
       found.substr(found.find_first_not_of(' ')));
}

}  // namespace

TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides,
                              const ReadOptions& options) {
  TrainConfig config;
  const auto describe = [&config](config::Fields& f) { config.describe(f); };
  const config::Source source = config::Source::from_file(path, overrides);
  source.read(describe);
  if (options.print) {
    const std::string yaml = config::dump(describe, &source);
    fmt::print("{}", is_terminal(stdout) ? displayed(yaml, Breaks::kKeep) : yaml);
  }
  if (options.planning && !config.model_init.empty() && !exists(join_path(config.model_init, "config.json"))) {
    if (config.model == ModelConfig{})
      fail(Exit::kUsage, "model.init: {} is not on this disk; give the model's sizes in the config to plan without it",
           config.model_init);
    say("note      model.init: {} is not on this disk; planned from the config's sizes\n", config.model_init);
  } else if (!config.model_init.empty()) {
    config.model = model_of_folder(config, source);
  }
  config.resolve();
  return config;
}

}  // namespace mantissa
