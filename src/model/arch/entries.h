// The rows of the architecture table, and what the rotary family (Llama, Qwen2, Qwen3) shares.
#pragma once

#include "model/arch/arch.h"

namespace mantissa {

namespace gpt2_arch {
ArchEntry entry();
}
namespace llama_arch {
ArchEntry entry();
}
namespace qwen2_arch {
ArchEntry entry();
}
namespace qwen3_arch {
ArchEntry entry();
}

// What transformers takes for a key that config.json leaves out; 0: num_key_value_heads as many as heads, head_dim
// hidden_size / heads.
struct RotaryDefaults {
  int64_t num_key_value_heads = 0, head_dim = 0, max_position_embeddings = 2048;
};
// Keys that Llama, Qwen2 and Qwen3 share; accepts rope_theta + rope_scaling and rope_parameters.
ModelConfig rotary_config_from_hf(const nlohmann::json& config, const char* arch, const RotaryDefaults& defaults);
nlohmann::ordered_json rotary_config_to_hf(const ModelConfig& config);
// What config.json of the Qwen family says of a sliding window: none.
void write_no_window(nlohmann::ordered_json& json, const ModelConfig& config);
// model.embed_tokens, model.layers.{i}..., model.norm, lm_head.
std::vector<ParamSpec> rotary_params(const ModelConfig& config, const ArchTraits& traits);

// config.json access that names the key in errors (Exit::kInput).
int64_t hf_integer(const nlohmann::json& config, const char* key);
int64_t hf_integer_or(const nlohmann::json& config, const char* key, int64_t otherwise);
double hf_number_or(const nlohmann::json& config, const char* key, double otherwise);
bool hf_boolean_or(const nlohmann::json& config, const char* key, bool otherwise);
// Fails unless config[key] is absent, null or equal to `only`.
void hf_require(const nlohmann::json& config, const char* key, const nlohmann::json& only);

}  // namespace mantissa
