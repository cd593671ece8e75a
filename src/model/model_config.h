// Dimensions and traits of a model; names are Hugging Face's.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"
#include "ops/rope.h"

namespace mantissa {

// Llama 3's frequency scaling (factor 1 = none): Hugging Face rope_type "llama3".
struct RopeScaling {
  std::string type = "default";
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  static constexpr double kNormEpsOfArch = -1;  // not given, as the architecture says

  std::string arch = "qwen3";  // a row of arch_table()
  int64_t vocab_size = 0;      // 0: not given, as the tokenizer says
  int64_t hidden_size = 256;
  int64_t intermediate_size = 768;
  int64_t num_hidden_layers = 6;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 0;  // 0: not given, as the architecture says
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  bool tie_word_embeddings = true;
  double norm_eps = kNormEpsOfArch;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  double initializer_range = 0.02;

  // What is not given becomes the architecture's default, but for vocab_size.
  void describe(config::Fields& fields);
  // Fills derived values, a vocab_size that is not given with that of bytes, and throws Exit::kUsage when dimensions
  // contradict each other.
  void resolve();

  bool operator==(const ModelConfig&) const = default;

  HeadLayout heads() const { return {num_attention_heads, num_key_value_heads, head_dim}; }
};

}  // namespace mantissa
