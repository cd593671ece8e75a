// Qwen2 and Qwen2.5: Llama with biases on the query, key and value projections.
#include <nlohmann/json.hpp>

#include "model/arch/entries.h"

namespace mantissa::qwen2_arch {
namespace {

constexpr ArchTraits kTraits = ArchTraits{.qkv_bias = true};
constexpr RotaryDefaults kDefaults = {.num_key_value_heads = 32, .max_position_embeddings = 32768};

ModelConfig from_hf(const nlohmann::json& config) { return rotary_config_from_hf(config, "qwen2", kDefaults); }

nlohmann::ordered_json to_hf(const ModelConfig& config) {
  nlohmann::ordered_json json = rotary_config_to_hf(config);
  write_no_window(json, config);
  return json;
}

std::vector<ParamSpec> params(const ModelConfig& config) { return rotary_params(config, kTraits); }

}  // namespace

ArchEntry entry() { return {"qwen2", "Qwen2ForCausalLM", kTraits, from_hf, params, to_hf}; }

}  // namespace mantissa::qwen2_arch
