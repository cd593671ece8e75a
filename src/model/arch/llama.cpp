// Llama 2 and 3: RMSNorm, SwiGLU, rotary positions, grouped queries, no biases.
#include <nlohmann/json.hpp>

#include "model/arch/entries.h"

namespace mantissa::llama_arch {
namespace {

constexpr ArchTraits kTraits = ArchTraits{.free_head_dim = true};

ModelConfig from_hf(const nlohmann::json& config) {
  hf_require(config, "attention_bias", false);
  return rotary_config_from_hf(config, "llama", {});
}

nlohmann::ordered_json to_hf(const ModelConfig& config) {
  nlohmann::ordered_json json = rotary_config_to_hf(config);
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  return json;
}

std::vector<ParamSpec> params(const ModelConfig& config) { return rotary_params(config, kTraits); }

}  // namespace

ArchEntry entry() { return {"llama", "LlamaForCausalLM", kTraits, from_hf, params, to_hf}; }

}  // namespace mantissa::llama_arch
