#include "model/hf/folder.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/text.h"
#include "model/hf/export.h"

namespace mantissa {
namespace hf {
namespace {

struct Other {
  std::string_view begins, ends, what;
};
// The first row that a file of the folder matches is told.
constexpr Other kOthers[] = {
    {"adapter_", ".json",
     "an adapter, not a whole model; merge it into its base (peft: merge_and_unload, then "
     "save_pretrained)"},
    {"adapter_", ".safetensors",
     "an adapter, not a whole model; merge it into its base (peft: merge_and_unload, then "
     "save_pretrained)"},
    {"pytorch_model", ".bin",
     "Python pickles, which can run code when loaded; load the folder in transformers and "
     "call save_pretrained(folder, safe_serialization=True)"},
    {"pytorch_model", ".bin.index.json",
     "the index of Python pickles, which can run code when loaded; load the folder in "
     "transformers and call save_pretrained(folder, safe_serialization=True)"},
    {"consolidated", ".pth",
     "Meta's own pickle; take the Hugging Face folder of the model with its .safetensors files"},
    {"consolidated", ".safetensors", "the original layout; take the Hugging Face folder with model.safetensors"},
    {"", ".gguf", "a GGUF file; take the model's Hugging Face folder with its .safetensors files"},
    {"", ".h5", "TensorFlow weights; load the folder in transformers with from_tf=True and save it again"},
    {"", ".msgpack", "Flax weights; load the folder in transformers with from_flax=True and save it again"},
    {"", ".pt", "a Python pickle, which can run code when loaded; save the model with save_pretrained"},
    {"", ".bin", "a Python pickle, which can run code when loaded; save the model with save_pretrained"},
    {"", ".safetensors", "weights of another name"},
};

}  // namespace

std::span<const std::string_view> tokenizer_files() {
  static constexpr std::string_view kFiles[] = {
      "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.json",
      "merges.txt",     "added_tokens.json"};
  return kFiles;
}

std::string shard_name(size_t shard, size_t shards) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

bool has_weights(const std::string& folder) {
  return exists(join_path(folder, kWeights)) || exists(join_path(folder, kIndex));
}

void refuse_without_weights(const std::string& folder) {
  if (!is_directory(folder)) fail(Exit::kInput, "{}: not there, or not a folder", folder);
  const std::vector<FolderEntry> entries = list_folder(folder);
  for (const Other& other : kOthers)
    for (const auto& [name, kind] : entries)
      if (name.starts_with(other.begins) && name.ends_with(other.ends))
        fail(Exit::kInput, "{}: no {} and no {}; {} is {}", folder, kWeights, kIndex, printable(name), other.what);
  fail(Exit::kInput, "{}: no {} and no {}", folder, kWeights, kIndex);
}

}  // namespace hf

std::string find_model_folder(const std::string& path) {
  if (!exists(path)) fail(Exit::kInput, "{}: not there", path);
  if (!is_directory(path))
    fail(Exit::kInput, "{}: is a file, expected a model folder (with {}) or the folder of a finished run", path,
         hf::kConfig);
  if (exists(join_path(path, hf::kConfig))) return path;
  const std::string model = join_path(path, "model");
  if (exists(join_path(model, hf::kConfig))) {
    if (exists(join_path(path, "run.json")) && !exists(join_path(path, "result.json")))
      fail(Exit::kInput, "{}: the run did not end; {} holds the weights of a run before it, and is to be named itself",
           path, model);
    return model;
  }
  if (exists(join_path(path, "run.json")))
    fail(Exit::kInput,
         "{}: the run has no {}: it did not finish, or train.save_weights was false; {}@last names its last checkpoint",
         path, model, path);
  if (exists(join_path(path, "compare.json")))
    fail(Exit::kInput, "{}: a comparison; give one of its rows (compare.save_weights: true keeps their weights)", path);
  hf::refuse_without_weights(path);
}

}  // namespace mantissa
