#include "model/hf/export_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/hf/folder.h"

namespace mantissa::hf {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;
constexpr const char* kEos = "eos_token_id";
constexpr const char* kIds[] = {"bos_token_id", kEos, "pad_token_id"};

// An object of `folder`, empty where the file is not there.
Json read_object(const std::string& folder, const char* name) {
  const std::string path = join_path(folder, name);
  if (folder.empty() || !exists(path)) return Json::object();
  Json json = read_json(path, kMaxConfigBytes);
  if (!json.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", path, json.type_name());
  return json;
}

void check_id(const Json& id, const char* key, const std::string& where, int64_t vocab) {
  if (id.is_array()) {
    for (const Json& one : id) check_id(one.is_array() ? Json("a list") : one, key, where, vocab);
    return;
  }
  if (!id.is_number_integer())
    fail(Exit::kInput, "{}: {}: found {}, expected a token id", where, key, printable(id.dump(), 40));
  // -1 stands for "none" in old configs.
  if (id.get<int64_t>() < -1 || id.get<int64_t>() >= vocab ||
      (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX))
    fail(Exit::kInput, "{}: {}: {} is outside the vocabulary of {}", where, key, id.dump(), vocab);
}

struct SourceOfIds {
  Json json;
  std::string where;
};

// The first source that names the id.
OrderedJson token_id(const char* key, const std::vector<SourceOfIds>& sources, int32_t otherwise, int64_t vocab) {
  for (const SourceOfIds& source : sources) {
    const auto at = source.json.find(key);
    if (at == source.json.end() || at->is_null()) continue;
    check_id(*at, key, source.where, vocab);
    return OrderedJson::parse(at->dump());
  }
  return otherwise >= 0 ? OrderedJson(otherwise) : OrderedJson(nullptr);
}

void add_eos(OrderedJson& generation, int32_t id) {
  OrderedJson& eos = generation[kEos];
  if (eos.is_null()) eos = id;
  if (eos == id) return;
  if (!eos.is_array()) eos = OrderedJson::array({eos});
  if (std::find(eos.begin(), eos.end(), OrderedJson(id)) == eos.end()) eos.push_back(id);
}

}  // namespace

void check_token_ids(const std::string& folder, int64_t vocab_size) {
  for (const char* name : {kConfig, kGenerationConfig}) {
    const Json json = read_object(folder, name);
    for (const char* key : kIds)
      if (json.contains(key) && !json[key].is_null()) check_id(json[key], key, join_path(folder, name), vocab_size);
  }
}

ExportConfigs export_configs(const ModelConfig& model, const HfExport& options) {
  const ArchEntry& arch = find_arch(model.arch);
  std::vector<SourceOfIds> sources, generations;
  for (const std::string& folder : {options.source_folder, options.tokenizer_folder}) {
    if (folder.empty()) continue;
    sources.push_back({read_object(folder, kConfig), join_path(folder, kConfig)});
    generations.push_back({read_object(folder, kGenerationConfig), join_path(folder, kGenerationConfig)});
  }
  std::vector<SourceOfIds> both = sources;
  both.insert(both.end(), generations.begin(), generations.end());

  const char* dtype = options.dtype == DType::kF32 ? "float32" : "bfloat16";
  OrderedJson config = {
      {"architectures", {arch.hf_class}}, {"model_type", arch.name}, {"vocab_size", model.vocab_size}};
  config.update(arch.to_hf(model));
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tie_word_embeddings;
  config["use_cache"] = true;
  config["torch_dtype"] = dtype;  // transformers 4 and what reads its folders
  config["dtype"] = dtype;        // transformers 5
  const int32_t otherwise[] = {options.bos, options.eos, options.pad};
  for (int i = 0; i < 3; ++i) config[kIds[i]] = token_id(kIds[i], both, otherwise[i], model.vocab_size);
  if (options.trained_eos >= 0) config[kEos] = options.trained_eos;

  OrderedJson generation = OrderedJson::object();
  if (!generations.empty()) generation = OrderedJson::parse(generations.front().json.dump());
  std::vector<SourceOfIds> generation_first = generations;
  generation_first.insert(generation_first.end(), sources.begin(), sources.end());
  for (int i = 0; i < 3; ++i) {
    OrderedJson id = token_id(kIds[i], generation_first, otherwise[i], model.vocab_size);
    if (!id.is_null()) generation[kIds[i]] = std::move(id);
  }
  if (options.trained_eos >= 0) generation[kEos] = options.trained_eos;
  for (const int32_t end : options.turn_ends) add_eos(generation, end);
  return {config.dump(2) + "\n", generation.dump(2) + "\n"};
}

}  // namespace mantissa::hf
