// Architectures: each file names its traits, its parameters with their Hugging Face names, and reads and writes its
// config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

enum class NormKind : uint8_t { kRms, kLayer };
enum class MlpKind : uint8_t { kSwiglu, kGelu };

// What distinguishes the pre-norm decoders of this family.
struct ArchTraits {
  NormKind norm = NormKind::kRms;
  MlpKind mlp = MlpKind::kSwiglu;
  bool rope = true;      // else learned positions
  bool qk_norm = false;  // per-head RMSNorm of queries and keys
  bool qkv_bias = false;
  bool linear_bias = false;  // biases on every other linear layer of a block
  bool grouped_queries = true;
  bool free_head_dim = false;  // N x D may differ from H
  double norm_eps = 1e-6;      // where none is given
};

struct ArchEntry {
  const char* name;      // model_type in config.json
  const char* hf_class;  // architectures[0]
  ArchTraits traits;
  // Throws Exit::kInput naming a key that is missing or has a value that is not supported.
  ModelConfig (*from_hf)(const nlohmann::json& config);
  std::vector<ParamSpec> (*params)(const ModelConfig& config);
  // The keys of config.json that from_hf reads and those whose defaults in transformers depend on the version; rotary
  // frequencies in the old and the new form.
  nlohmann::ordered_json (*to_hf)(const ModelConfig& config);
};

const std::vector<ArchEntry>& arch_table();
std::vector<std::string> arch_names();
// Throws Exit::kUsage with the nearest name.
const ArchEntry& find_arch(const std::string& name);

// Names inside the house, shared by all architectures.
namespace param_names {
inline constexpr const char* kEmbedding = "embedding.weight";
inline constexpr const char* kPositions = "positions.weight";
inline constexpr const char* kHead = "head.weight";
inline constexpr const char* kLinears[] = {"attention.qkv", "attention.out", "mlp.up", "mlp.down"};  // of a block
std::string layer(int64_t index, const std::string& leaf);  // "layers.3." + leaf
}  // namespace param_names

}  // namespace mantissa
