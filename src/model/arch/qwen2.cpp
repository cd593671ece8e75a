// Qwen2 and Qwen2.5: Llama with biases on the query, key and value projections.
#include <nlohmann/json.hpp>

#include "model/arch/entries.h"

namespace mantissa {
namespace {

constexpr ArchTraits kTraits = ArchTraits{.qkv_bias = true};

ModelConfig from_hf(const nlohmann::json& config) { return rotary_config_from_hf(config, "qwen2"); }

std::vector<ParamSpec> params(const ModelConfig& config) { return rotary_params(config, kTraits); }

}  // namespace

ArchEntry qwen2_entry() { return {"qwen2", "Qwen2ForCausalLM", kTraits, from_hf, params}; }

}  // namespace mantissa
