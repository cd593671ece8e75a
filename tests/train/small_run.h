// A run of some seconds' hundredths on a text of eight letters.
#pragma once

#include "base/file.h"
#include "tests/base/support.h"
#include "tests/model/small_model.h"
#include "train/config.h"

namespace mantissa::testing {

// Drawn from eight letters; a blank line ends a document of 97.
inline std::string letters(uint32_t count) {
  std::string text;
  for (uint32_t i = 0, state = 9; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    text += static_cast<char>('a' + (state >> 20) % 8);
    if (i % 97 == 96) text += "\n\n";
  }
  return text;
}

// A Qwen3 of bytes.
inline ModelConfig small_qwen3(int64_t hidden, int64_t intermediate, int64_t layers) {
  return test::model_of("qwen3", {.vocab = 256,
                                  .hidden = hidden,
                                  .intermediate = intermediate,
                                  .layers = layers,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = hidden / 2,
                                  .positions = 2048});
}

inline TrainConfig small_run(const TempFolder& folder, const std::string& name) {
  write_atomic(folder / "text.txt", letters(12'000));
  TrainConfig c;
  c.run.dir = folder / name;
  c.model = small_qwen3(64, 64, 1);
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
