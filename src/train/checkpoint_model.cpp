#include "train/checkpoint_model.h"

#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "model/arch/arch.h"
#include "model/hf/export.h"
#include "tensor/arena.h"
#include "train/checkpoint/store.h"
#include "train/model_output.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLast = "last";

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The config that the run had when it saved.
TrainConfig config_of(const Checkpoint& checkpoint) {
  TrainConfig config;
  const std::string path = join_path(checkpoint.folder(), Manifest::kName);
  const Json& text = member(checkpoint.run(), "config", path);
  if (!text.is_string()) fail(Exit::kInput, "{}: run.config is {}, expected text", path, text.type_name());
  try {
    config::Source::from_text(text.get<std::string>(), path).read([&config](config::Fields& f) { config.describe(f); });
    config.model.resolve();
  } catch (const Error& error) {
    throw Error(Exit::kInput, error.what());
  }
  return config;
}

// The parameters as updates leave them: masters where there are any.
void write_model(const Checkpoint& checkpoint, const std::string& folder) {
  const TrainConfig config = config_of(checkpoint);
  const std::string path = join_path(checkpoint.folder(), Manifest::kName);
  const Json& data = member(checkpoint.run(), "data", path);
  const Json &eos = member(data, "eos", path), &tokenizer_name = member(data, "tokenizer_path", path);
  if (!eos.is_number_integer() || !tokenizer_name.is_string())
    fail(Exit::kInput, "{}: run.data is of another kind than a run writes", path);
  std::optional<Tokenizer> tokenizer;
  if (const auto name = tokenizer_name.get<std::string>(); !name.empty()) tokenizer = Tokenizer::open(name);

  const HfExport options = export_options(config, tokenizer ? &*tokenizer : nullptr, eos.get<int32_t>());
  const bool full = options.dtype == DType::kF32;
  ParamStore params(find_arch(config.model.arch).params(config.model),
                    {.weights = full ? WeightMode::kF32 : WeightMode::kBF16, .training = false});
  Arena arena;
  arena.build([&params](Arena& a) { params.allocate(a); });
  const bool masters = config.precision.weight_mode() == WeightMode::kF32Master;
  checkpoint.fill([&](const StateVisitor& f) {
    for (int id = 0; id < params.size(); ++id)
      f({(masters ? "masters/" : "weights/") + params.spec(id).name, params.weight(id)});
  });
  write_hf_folder(folder, config.model, params, options);
}

}  // namespace

struct ModelFolder::Temporary {
  Temporary() {
    std::string pattern = (fs::temp_directory_path() / "mantissa-model-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      fail(Exit::kStorage, "{}: cannot be made; TMPDIR names another folder", pattern);
    folder = pattern;
  }
  ~Temporary() {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) fmt::print(stderr, "warning: {}: cannot be removed and stays: {}\n", folder, error.message());
  }
  std::string folder;
};

bool names_checkpoint(const std::string& path) {
  const size_t at = path.rfind('@');
  if (at == std::string::npos || at == 0 || exists(path)) return false;
  const std::string_view step = std::string_view(path).substr(at + 1);
  return is_number(step) || step == kLast;
}

std::string run_of(const std::string& path) { return names_checkpoint(path) ? path.substr(0, path.rfind('@')) : path; }

Checkpoint open_checkpoint(const std::string& path) {
  const std::string run = run_of(path), step = path.substr(path.rfind('@') + 1);
  if (!is_directory(run)) fail(Exit::kInput, "{}: {} is not there", path, run);
  const CheckpointStore store(join_path(run, CheckpointStore::kFolder));
  const std::vector<int64_t> there = store.steps();
  if (step == kLast) {
    std::string reason = "it has none";
    std::optional<Checkpoint> newest = store.newest([&](const std::string& why) { reason = why; }, [](const auto&) {});
    if (!newest) fail(Exit::kInput, "{}: no checkpoint of the run can be read: {}", path, reason);
    return std::move(*newest);
  }
  int64_t wanted = -1;
  std::from_chars(step.data(), step.data() + step.size(), wanted);
  if (std::find(there.begin(), there.end(), wanted) == there.end()) {
    std::vector<std::string> names;
    for (const int64_t s : there) names.push_back(run + "@" + std::to_string(s));
    fail(Exit::kInput, "{}: the run has no checkpoint of that step; {}", path,
         names.empty() ? "it has none" : "there are " + join(names, ", "));
  }
  return Checkpoint::open(store.place(wanted));
}

ModelFolder::ModelFolder(const std::string& path) {
  if (!names_checkpoint(path)) {
    path_ = find_model_folder(path);
    return;
  }
  const Checkpoint checkpoint = open_checkpoint(path);
  temporary_ = std::make_shared<const Temporary>();
  path_ = join_path(temporary_->folder, "model");
  in_context(path, [&] { write_model(checkpoint, path_); });
}

}  // namespace mantissa
