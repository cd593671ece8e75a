// A run of some seconds' hundredths on a text of eight letters.
#pragma once

#include "base/file.h"
#include "tests/base/support.h"
#include "train/config.h"

namespace mantissa::testing {

inline TrainConfig small_run(const TempFolder& folder, const std::string& name) {
  std::string text;
  for (uint32_t i = 0, state = 9; i < 12'000; ++i) {
    state = state * 1664525u + 1013904223u;
    text += static_cast<char>('a' + (state >> 20) % 8);
    if (i % 97 == 96) text += "\n\n";
  }
  write_atomic(folder / "text.txt", text);
  TrainConfig c;
  c.run.dir = folder / name;
  c.model.arch = "qwen3";
  c.model.vocab_size = 256;
  c.model.hidden_size = 64;
  c.model.intermediate_size = 64;
  c.model.num_hidden_layers = 1;
  c.model.num_attention_heads = 2;
  c.model.num_key_value_heads = 1;
  c.model.head_dim = 32;
  c.data.train = folder / "text.txt";
  c.data.sequence_length = 32;
  c.batch.tokens = 64;
  c.train.steps = 4;
  c.compare.weights = {"fp32"};
  c.precision.recipes = {"mxfp8"};
  c.resolve();
  return c;
}

}  // namespace mantissa::testing
