// GPT-2: LayerNorm, GELU (tanh), learned positions, biases everywhere, tied head. Radford et al. 2019.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/arch/entries.h"

namespace mantissa::gpt2_arch {
namespace {

constexpr ArchTraits kTraits = {.norm = NormKind::kLayer,
                                .mlp = MlpKind::kGelu,
                                .rope = false,
                                .qkv_bias = true,
                                .linear_bias = true,
                                .grouped_queries = false,
                                .norm_eps = 1e-5};

ModelConfig from_hf(const nlohmann::json& config) {
  ModelConfig m;
  m.arch = "gpt2";
  m.vocab_size = hf_integer(config, "vocab_size");
  m.hidden_size = hf_integer(config, "n_embd");
  m.intermediate_size = hf_integer_or(config, "n_inner", 4 * m.hidden_size);
  m.num_hidden_layers = hf_integer(config, "n_layer");
  m.num_attention_heads = m.num_key_value_heads = hf_integer(config, "n_head");
  m.max_position_embeddings = hf_integer(config, "n_positions");
  m.tie_word_embeddings = hf_boolean_or(config, "tie_word_embeddings", true);
  m.norm_eps = hf_number_or(config, "layer_norm_epsilon", 1e-5);
  m.initializer_range = hf_number_or(config, "initializer_range", 0.02);
  hf_require(config, "activation_function", "gelu_new");
  hf_require(config, "scale_attn_weights", true);
  hf_require(config, "scale_attn_by_inverse_layer_idx", false);
  hf_require(config, "add_cross_attention", false);
  return m;
}

nlohmann::ordered_json to_hf(const ModelConfig& m) {
  nlohmann::ordered_json inner = nullptr;  // 4 * n_embd
  if (m.intermediate_size != 4 * m.hidden_size) inner = m.intermediate_size;
  return {{"n_embd", m.hidden_size},
          {"n_inner", std::move(inner)},
          {"n_layer", m.num_hidden_layers},
          {"n_head", m.num_attention_heads},
          {"n_positions", m.max_position_embeddings},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", m.norm_eps},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false},
          {"reorder_and_upcast_attn", false},
          {"add_cross_attention", false},
          // Training here has no dropout.
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

std::vector<ParamSpec> params(const ModelConfig& c) {
  const int64_t h = c.hidden_size, f = c.intermediate_size, v = c.vocab_size;
  const double std = c.initializer_range;
  // Projections into the residual stream start smaller, by the number of them.
  const double out_std = std / std::sqrt(2.0 * static_cast<double>(c.num_hidden_layers));
  std::vector<ParamSpec> p;
  const auto matrix = [&](std::string name, int64_t out, int64_t in, std::string hf, double s) {
    p.push_back({std::move(name), {out, in}, {{std::move(hf), 0, out, true}}, Init::kNormal, s});
  };
  const auto vector = [&](std::string name, int64_t n, std::string hf, Init init) {
    p.push_back({std::move(name), {n}, {{std::move(hf), 0, n}}, init, 0});
  };
  p.push_back({param_names::kEmbedding, {v, h}, {{"transformer.wte.weight", 0, v}}, Init::kNormal, std});
  p.push_back({param_names::kPositions,
               {c.max_position_embeddings, h},
               {{"transformer.wpe.weight", 0, c.max_position_embeddings}},
               Init::kNormal,
               std});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const auto name = [&](const char* leaf) { return param_names::layer(i, leaf); };
    const auto hf = [&](const char* leaf) { return fmt::format("transformer.h.{}.{}", i, leaf); };
    vector(name("attention_norm.weight"), h, hf("ln_1.weight"), Init::kOnes);
    vector(name("attention_norm.bias"), h, hf("ln_1.bias"), Init::kZeros);
    matrix(name("attention.qkv.weight"), 3 * h, h, hf("attn.c_attn.weight"), std);
    vector(name("attention.qkv.bias"), 3 * h, hf("attn.c_attn.bias"), Init::kZeros);
    matrix(name("attention.out.weight"), h, h, hf("attn.c_proj.weight"), out_std);
    vector(name("attention.out.bias"), h, hf("attn.c_proj.bias"), Init::kZeros);
    vector(name("mlp_norm.weight"), h, hf("ln_2.weight"), Init::kOnes);
    vector(name("mlp_norm.bias"), h, hf("ln_2.bias"), Init::kZeros);
    matrix(name("mlp.up.weight"), f, h, hf("mlp.c_fc.weight"), std);
    vector(name("mlp.up.bias"), f, hf("mlp.c_fc.bias"), Init::kZeros);
    matrix(name("mlp.down.weight"), h, f, hf("mlp.c_proj.weight"), out_std);
    vector(name("mlp.down.bias"), h, hf("mlp.c_proj.bias"), Init::kZeros);
  }
  vector("final_norm.weight", h, "transformer.ln_f.weight", Init::kOnes);
  vector("final_norm.bias", h, "transformer.ln_f.bias", Init::kZeros);
  if (!c.tie_word_embeddings) p.push_back({param_names::kHead, {v, h}, {{"lm_head.weight", 0, v}}, Init::kNormal, std});
  return p;
}

}  // namespace

ArchEntry entry() { return {"gpt2", "GPT2LMHeadModel", kTraits, from_hf, params, to_hf}; }

}  // namespace mantissa::gpt2_arch
