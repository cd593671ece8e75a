// Models small enough to train in a test.
#pragma once

#include <string>

#include "model/model_config.h"

namespace mantissa::test {

struct ModelSizes {
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim, positions;
  double initializer_range = ModelConfig().initializer_range;
};

// GPT-2 has as many key heads as heads.
inline ModelConfig model_of(const std::string& arch, const ModelSizes& s) {
  ModelConfig m;
  m.arch = arch;
  m.vocab_size = s.vocab;
  m.hidden_size = s.hidden;
  m.intermediate_size = s.intermediate;
  m.num_hidden_layers = s.layers;
  m.num_attention_heads = s.heads;
  m.num_key_value_heads = arch == "gpt2" ? s.heads : s.kv_heads;
  m.head_dim = s.head_dim;
  m.max_position_embeddings = s.positions;
  m.initializer_range = s.initializer_range;
  m.resolve();
  return m;
}

}  // namespace mantissa::test
