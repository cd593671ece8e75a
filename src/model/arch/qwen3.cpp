// Qwen3: Llama with per-head RMSNorm of queries and keys and a head dimension of its own.
#include <nlohmann/json.hpp>

#include "model/arch/entries.h"

namespace mantissa::qwen3_arch {
namespace {

constexpr ArchTraits kTraits = ArchTraits{.qk_norm = true, .free_head_dim = true};
constexpr RotaryDefaults kDefaults = {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768};

ModelConfig from_hf(const nlohmann::json& config) {
  hf_require(config, "attention_bias", false);
  return rotary_config_from_hf(config, "qwen3", kDefaults);
}

nlohmann::ordered_json to_hf(const ModelConfig& config) {
  nlohmann::ordered_json json = rotary_config_to_hf(config);
  json["attention_bias"] = false;
  write_no_window(json, config);
  return json;
}

std::vector<ParamSpec> params(const ModelConfig& config) { return rotary_params(config, kTraits); }

}  // namespace

ArchEntry entry() { return {"qwen3", "Qwen3ForCausalLM", kTraits, from_hf, params, to_hf}; }

}  // namespace mantissa::qwen3_arch
