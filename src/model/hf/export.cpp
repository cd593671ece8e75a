#include "model/hf/export.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "model/hf/export_config.h"
#include "model/hf/folder.h"
#include "model/hf/match.h"
#include "model/hf/values.h"

namespace mantissa {
namespace {

// A tensor of the folder and what it is cut from.
struct Piece {
  int param = 0;
  const HfPart* part = nullptr;
  uint64_t bytes = 0;
};
using Shard = std::map<std::string, Piece>;

// In the order of the parameters, as transformers shards: a tensor that does not fit begins the next file, one that is
// larger than a file has its own.
std::vector<Shard> plan_shards(const ParamStore& params, DType dtype, uint64_t most) {
  std::vector<Shard> shards;
  Shard open;
  uint64_t filled = 0;
  for (int id = 0; id < params.size(); ++id) {
    const ParamSpec& spec = params.spec(id);
    const int64_t cols = spec.shape.rank() == 1 ? 1 : spec.shape[1];
    for (const HfPart& part : spec.hf) {
      const Piece piece{id, &part, static_cast<uint64_t>(bytes_of(dtype, part.rows * cols))};
      if (piece.bytes > most) {
        shards.push_back({{part.name, piece}});
        continue;
      }
      if (filled + piece.bytes > most) {
        shards.push_back(std::exchange(open, {}));
        filled = 0;
      }
      open.emplace(part.name, piece);
      filled += piece.bytes;
    }
  }
  if (!open.empty()) shards.push_back(std::move(open));
  return shards;
}

void write_shard(const std::string& path, const Shard& shard, const ParamStore& params, DType dtype) {
  std::vector<safetensors::TensorInfo> tensors;
  for (const auto& [name, piece] : shard)
    tensors.push_back(
        {name, dtype == DType::kF32 ? "F32" : "BF16", hf::part_shape(params.spec(piece.param), *piece.part)});
  safetensors::Writer writer(path, std::move(tensors));
  for (const safetensors::TensorInfo& tensor : writer.tensors()) {
    const Piece& piece = shard.at(tensor.name);
    hf::write_part(params, piece.param, *piece.part, dtype,
                   [&writer](std::span<const std::byte> bytes) { writer.write(bytes); });
  }
  writer.commit();
}

void write_weights(const std::string& folder, const ParamStore& params, const HfExport& options) {
  const std::vector<Shard> shards = plan_shards(params, options.dtype, options.shard_bytes);
  if (shards.size() == 1) {
    write_shard(join_path(folder, hf::kWeights), shards.front(), params, options.dtype);
    return;
  }
  nlohmann::json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::json::object()}};
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = hf::shard_name(i, shards.size());
    write_shard(join_path(folder, name), shards[i], params, options.dtype);
    for (const auto& [tensor, piece] : shards[i]) {
      index["weight_map"][tensor] = name;
      total += piece.bytes;
    }
  }
  index["metadata"]["total_size"] = total;
  write_atomic(join_path(folder, hf::kIndex), index.dump(2) + "\n");
}

void copy_file(const std::string& from, const std::string& to) {
  FileStream file(from);
  AtomicFile copy(to);
  std::string piece(size_t{1} << 20, '\0');
  while (const size_t got = file.read(piece)) copy.write(std::string_view(piece).substr(0, got));
  copy.commit();
}

constexpr std::string_view kTokenizerConfig = "tokenizer_config.json";

// tokenizer_config.json, whose model_max_length is the model's.
std::string with_model_length(const std::string& text, const std::string& where, const ModelConfig& model) {
  parse_json(text, where);  // held to the house's rules
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  if (!json.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", where, json.type_name());
  json["model_max_length"] = model.max_position_embeddings;
  return json.dump(2) + "\n";
}

void write_tokenizer(const std::string& folder, const ModelConfig& model, const HfExport& options) {
  for (const auto& [name, content] : options.files)
    write_atomic(join_path(folder, name), name == kTokenizerConfig ? with_model_length(content, name, model) : content);
  if (options.tokenizer_folder.empty()) return;
  for (const std::string_view file : hf::tokenizer_files()) {
    const std::string name(file), from = join_path(options.tokenizer_folder, name);
    const bool given =
        std::any_of(options.files.begin(), options.files.end(), [&](const auto& f) { return f.first == name; });
    if (given || !exists(from)) continue;
    if (name == kTokenizerConfig)
      write_atomic(join_path(folder, name), with_model_length(read_text(from), from, model));
    else
      copy_file(from, join_path(folder, name));
  }
}

}  // namespace

uint64_t export_bytes(const std::vector<ParamSpec>& specs, DType dtype) {
  uint64_t bytes = 0;
  for (const ParamSpec& spec : specs) bytes += static_cast<uint64_t>(bytes_of(dtype, spec.shape.count()));
  return bytes;
}

void write_hf_folder(const std::string& folder, const ModelConfig& model, const ParamStore& params,
                     const HfExport& options) {
  check(options.dtype == DType::kF32 || options.dtype == DType::kBF16, "export as {}", name_of(options.dtype));
  if (exists(folder)) fail(Exit::kUsage, "{}: is there already; give a folder that is not", folder);
  const hf::ExportConfigs configs = hf::export_configs(model, options);
  NewFolder written(folder);
  write_weights(written.path(), params, options);
  write_tokenizer(written.path(), model, options);
  write_atomic(join_path(written.path(), hf::kGenerationConfig), configs.generation);
  write_atomic(join_path(written.path(), hf::kConfig), configs.config);
  written.commit();
}

}  // namespace mantissa
