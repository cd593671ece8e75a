// Qwen3: Llama with per-head RMSNorm of queries and keys and a head dimension of its own.
#include <nlohmann/json.hpp>

#include "model/arch/entries.h"

namespace mantissa {
namespace {

constexpr ArchTraits kTraits = ArchTraits{.qk_norm = true, .free_head_dim = true};

ModelConfig from_hf(const nlohmann::json& config) {
  hf_require(config, "attention_bias", false);
  return rotary_config_from_hf(config, "qwen3");
}

std::vector<ParamSpec> params(const ModelConfig& config) { return rotary_params(config, kTraits); }

}  // namespace

ArchEntry qwen3_entry() { return {"qwen3", "Qwen3ForCausalLM", kTraits, from_hf, params}; }

}  // namespace mantissa
