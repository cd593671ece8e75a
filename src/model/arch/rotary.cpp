// What Llama, Qwen2 and Qwen3 share: config keys and parameter names.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/arch/entries.h"

namespace mantissa {
namespace {

using nlohmann::json;

bool given(const json& config, const char* key) { return config.contains(key) && !config.at(key).is_null(); }

void read_rope(const json& rope, ModelConfig& m) {
  if (!rope.is_object()) fail(Exit::kInput, "rope parameters: found {}, expected an object", rope.dump());
  if (given(rope, "rope_theta")) m.rope_theta = hf_number_or(rope, "rope_theta", m.rope_theta);
  hf_require(rope, "partial_rotary_factor", 1.0);
  const char* key = given(rope, "rope_type") ? "rope_type" : "type";
  if (!given(rope, key)) return;
  if (!rope.at(key).is_string()) fail(Exit::kInput, "{}: found {}, expected a text", key, rope.at(key).dump());
  m.rope_scaling.type = rope.at(key).get<std::string>();
  if (m.rope_scaling.type == "default") return;
  if (m.rope_scaling.type != "llama3")
    fail(Exit::kInput, "rope type {}: not supported; default and llama3 are", m.rope_scaling.type);
  m.rope_scaling.factor = hf_number_or(rope, "factor", 1);
  m.rope_scaling.low_freq_factor = hf_number_or(rope, "low_freq_factor", 1);
  m.rope_scaling.high_freq_factor = hf_number_or(rope, "high_freq_factor", 4);
  m.rope_scaling.original_max_position_embeddings = hf_integer(rope, "original_max_position_embeddings");
}

}  // namespace

int64_t hf_integer(const json& config, const char* key) {
  if (!given(config, key)) fail(Exit::kInput, "{}: missing", key);
  if (!config.at(key).is_number_integer())
    fail(Exit::kInput, "{}: found {}, expected an integer", key, config.at(key).dump());
  return config.at(key).get<int64_t>();
}

int64_t hf_integer_or(const json& config, const char* key, int64_t otherwise) {
  return given(config, key) ? hf_integer(config, key) : otherwise;
}

double hf_number_or(const json& config, const char* key, double otherwise) {
  if (!given(config, key)) return otherwise;
  if (!config.at(key).is_number()) fail(Exit::kInput, "{}: found {}, expected a number", key, config.at(key).dump());
  return config.at(key).get<double>();
}

bool hf_boolean_or(const json& config, const char* key, bool otherwise) {
  if (!given(config, key)) return otherwise;
  if (!config.at(key).is_boolean())
    fail(Exit::kInput, "{}: found {}, expected true or false", key, config.at(key).dump());
  return config.at(key).get<bool>();
}

void hf_require(const json& config, const char* key, const json& only) {
  if (given(config, key) && config.at(key) != only)
    fail(Exit::kInput, "{}: {} is not supported; {} is", key, config.at(key).dump(), only.dump());
}

ModelConfig rotary_config_from_hf(const json& config, const char* arch, const RotaryDefaults& defaults) {
  ModelConfig m;
  m.arch = arch;
  m.vocab_size = hf_integer(config, "vocab_size");
  m.hidden_size = hf_integer(config, "hidden_size");
  m.intermediate_size = hf_integer(config, "intermediate_size");
  m.num_hidden_layers = hf_integer(config, "num_hidden_layers");
  m.num_attention_heads = hf_integer(config, "num_attention_heads");
  m.num_key_value_heads =
      hf_integer_or(config, "num_key_value_heads",
                    defaults.num_key_value_heads > 0 ? defaults.num_key_value_heads : m.num_attention_heads);
  m.head_dim = hf_integer_or(config, "head_dim", defaults.head_dim);
  m.max_position_embeddings = hf_integer_or(config, "max_position_embeddings", defaults.max_position_embeddings);
  m.tie_word_embeddings = hf_boolean_or(config, "tie_word_embeddings", false);
  m.norm_eps = hf_number_or(config, "rms_norm_eps", 1e-6);
  m.initializer_range = hf_number_or(config, "initializer_range", 0.02);
  m.rope_theta = hf_number_or(config, "rope_theta", 10000);
  hf_require(config, "hidden_act", "silu");
  hf_require(config, "mlp_bias", false);
  hf_require(config, "use_sliding_window", false);
  hf_require(config, "attention_dropout", 0.0);
  hf_require(config, "partial_rotary_factor", 1.0);
  if (given(config, "rope_scaling")) read_rope(config.at("rope_scaling"), m);
  if (given(config, "rope_parameters")) read_rope(config.at("rope_parameters"), m);
  if (given(config, "layer_types"))
    for (const json& type : config.at("layer_types"))
      if (type != "full_attention")
        fail(Exit::kInput, "layer_types: {} is not supported; full_attention is", type.dump());
  return m;
}

nlohmann::ordered_json rotary_config_to_hf(const ModelConfig& m) {
  nlohmann::ordered_json scaling = nullptr, rope = {{"rope_type", m.rope_scaling.type}, {"rope_theta", m.rope_theta}};
  if (m.rope_scaling.type == "llama3") {
    scaling = {{"rope_type", m.rope_scaling.type},
               {"factor", m.rope_scaling.factor},
               {"low_freq_factor", m.rope_scaling.low_freq_factor},
               {"high_freq_factor", m.rope_scaling.high_freq_factor},
               {"original_max_position_embeddings", m.rope_scaling.original_max_position_embeddings}};
    rope.update(scaling);
  }
  return {{"hidden_size", m.hidden_size},
          {"intermediate_size", m.intermediate_size},
          {"num_hidden_layers", m.num_hidden_layers},
          {"num_attention_heads", m.num_attention_heads},
          {"num_key_value_heads", m.num_key_value_heads},
          {"head_dim", m.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", m.max_position_embeddings},
          {"rms_norm_eps", m.norm_eps},
          {"rope_theta", m.rope_theta},
          {"rope_scaling", std::move(scaling)},
          {"rope_parameters", std::move(rope)},
          {"attention_dropout", 0.0}};
}

void write_no_window(nlohmann::ordered_json& json, const ModelConfig& config) {
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["max_window_layers"] = config.num_hidden_layers;
}

std::vector<ParamSpec> rotary_params(const ModelConfig& c, const ArchTraits& traits) {
  const int64_t h = c.hidden_size, f = c.intermediate_size, d = c.head_dim;
  const int64_t q = c.num_attention_heads * d, kv = c.num_key_value_heads * d;
  const double std = c.initializer_range;
  std::vector<ParamSpec> p;
  const auto add = [&](std::string name, Shape shape, std::vector<HfPart> hf, Init init = Init::kNormal) {
    p.push_back({std::move(name), shape, std::move(hf), init, std});
  };
  add(param_names::kEmbedding, {c.vocab_size, h}, {{"model.embed_tokens.weight", 0, c.vocab_size}});
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const auto name = [&](const char* leaf) { return param_names::layer(i, leaf); };
    const auto hf = [&](const char* leaf) { return fmt::format("model.layers.{}.{}", i, leaf); };
    const auto qkv = [&](const char* leaf) {
      return std::vector<HfPart>{{hf("self_attn.q_proj.") + leaf, 0, q},
                                 {hf("self_attn.k_proj.") + leaf, q, kv},
                                 {hf("self_attn.v_proj.") + leaf, q + kv, kv}};
    };
    add(name("attention_norm.weight"), {h}, {{hf("input_layernorm.weight"), 0, h}}, Init::kOnes);
    add(name("attention.qkv.weight"), {q + 2 * kv, h}, qkv("weight"));
    if (traits.qkv_bias) add(name("attention.qkv.bias"), {q + 2 * kv}, qkv("bias"), Init::kZeros);
    if (traits.qk_norm) {
      add(name("attention.q_norm.weight"), {d}, {{hf("self_attn.q_norm.weight"), 0, d}}, Init::kOnes);
      add(name("attention.k_norm.weight"), {d}, {{hf("self_attn.k_norm.weight"), 0, d}}, Init::kOnes);
    }
    add(name("attention.out.weight"), {h, q}, {{hf("self_attn.o_proj.weight"), 0, h}});
    add(name("mlp_norm.weight"), {h}, {{hf("post_attention_layernorm.weight"), 0, h}}, Init::kOnes);
    add(name("mlp.up.weight"), {2 * f, h}, {{hf("mlp.gate_proj.weight"), 0, f}, {hf("mlp.up_proj.weight"), f, f}});
    add(name("mlp.down.weight"), {h, f}, {{hf("mlp.down_proj.weight"), 0, h}});
  }
  add("final_norm.weight", {h}, {{"model.norm.weight", 0, h}}, Init::kOnes);
  if (!c.tie_word_embeddings) add(param_names::kHead, {c.vocab_size, h}, {{"lm_head.weight", 0, c.vocab_size}});
  return p;
}

}  // namespace mantissa
