#include "model/model_config.h"

#include "base/error.h"
#include "model/arch/arch.h"

namespace mantissa {
namespace {

constexpr int64_t kBytesVocabulary = 256;

void fill_norm_eps(ModelConfig& m) {
  if (m.norm_eps == ModelConfig::kNormEpsOfArch) m.norm_eps = find_arch(m.arch).traits.norm_eps;
}

void fill_key_value_heads(ModelConfig& m) {
  constexpr int64_t kGrouped = 2;
  if (m.num_key_value_heads == 0)
    m.num_key_value_heads = find_arch(m.arch).traits.grouped_queries ? kGrouped : m.num_attention_heads;
}

}  // namespace

void ModelConfig::describe(config::Fields& f) {
  f.choice("arch", arch, arch_names(), "architecture");
  f.integer("vocab_size", vocab_size, "rows of the embedding; 0: as many as the tokenizer has ids",
            {.min = 0, .max = 1 << 24});
  f.integer("hidden_size", hidden_size, "H", {.min = 1, .max = 1 << 20});
  f.integer("intermediate_size", intermediate_size, "F, width of the MLP", {.min = 1, .max = 1 << 22});
  f.integer("num_hidden_layers", num_hidden_layers, "L", {.min = 1, .max = 4096});
  f.integer("num_attention_heads", num_attention_heads, "N", {.min = 1, .max = 4096});
  fill_key_value_heads(*this);
  f.integer("num_key_value_heads", num_key_value_heads, "KV; divides N; of gpt2 N", {.min = 1, .max = 4096});
  f.integer("head_dim", head_dim, "D; 0 = hidden_size / num_attention_heads", {.min = 0, .max = 4096});
  f.integer("max_position_embeddings", max_position_embeddings, "longest row", {.min = 1, .max = 1 << 24});
  f.boolean("tie_word_embeddings", tie_word_embeddings, "the head reads the embedding");
  fill_norm_eps(*this);
  f.number("norm_eps", norm_eps, "epsilon of the norms; of gpt2 1e-05", {.min = 0, .max = 1});
  f.number("rope_theta", rope_theta, "base of the rotary frequencies", {.min = 1});
  f.number("initializer_range", initializer_range, "standard deviation of new weights", {.min = 0, .max = 10});
  f.section("rope_scaling", [this](config::Fields& r) {
    r.choice("type", rope_scaling.type, {"default", "llama3"}, "frequency scaling");
    r.number("factor", rope_scaling.factor, "wavelengths above the low band are stretched by this", {.min = 1});
    r.number("low_freq_factor", rope_scaling.low_freq_factor, "original length / this = longest kept wavelength",
             {.min = 0});
    r.number("high_freq_factor", rope_scaling.high_freq_factor, "original length / this = shortest stretched one",
             {.min = 0});
    r.integer("original_max_position_embeddings", rope_scaling.original_max_position_embeddings,
              "length that the model was trained at", {.min = 1});
  });
}

void ModelConfig::resolve() {
  const ArchTraits& traits = find_arch(arch).traits;
  fill_key_value_heads(*this);
  fill_norm_eps(*this);
  if (vocab_size == 0) vocab_size = kBytesVocabulary;
  if (vocab_size < 2) fail(Exit::kUsage, "model: vocab_size {}, expected at least 2", vocab_size);
  if (head_dim == 0) {
    if (hidden_size % num_attention_heads != 0)
      fail(Exit::kUsage, "model: hidden_size {} is not a multiple of num_attention_heads {}", hidden_size,
           num_attention_heads);
    head_dim = hidden_size / num_attention_heads;
  }
  if (num_attention_heads % num_key_value_heads != 0)
    fail(Exit::kUsage, "model: num_attention_heads {} is not a multiple of num_key_value_heads {}", num_attention_heads,
         num_key_value_heads);
  if (traits.rope && head_dim % 2 != 0)
    fail(Exit::kUsage, "model: head_dim {} is odd, rotary embedding needs pairs", head_dim);
  if (!traits.grouped_queries && num_key_value_heads != num_attention_heads)
    fail(Exit::kUsage, "model: {} has as many key-value heads as heads ({}), not {}", arch, num_attention_heads,
         num_key_value_heads);
  if (!traits.free_head_dim && head_dim * num_attention_heads != hidden_size)
    fail(Exit::kUsage, "model: {} needs num_attention_heads x head_dim = hidden_size, found {} x {} != {}", arch,
         num_attention_heads, head_dim, hidden_size);
}

}  // namespace mantissa
