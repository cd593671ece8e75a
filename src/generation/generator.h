// Decoding with a KV cache: tokens in, logits of the next one out. Runs on the weights in their compute dtype (FP32 or
// BF16), whichever recipe trains them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/model_config.h"
#include "model/param.h"
#include "tensor/exec.h"

namespace mantissa {

class Generator {
 public:
  // Room for `max_tokens` tokens, prompt and generated ones, at most the model's max_position_embeddings
  // (Exit::kUsage). `params` must outlive the generator; it is read at every call. On a GPU scratch is reserved where
  // exec has less than decoding takes, and the bits of append() may depend on its calls.
  Generator(Exec& exec, const ModelConfig& model, const ParamStore& params, int64_t max_tokens);
  ~Generator();
  // What a generator takes: cache, activations, logits, tables.
  static MemoryLedger plan(const ModelConfig& model, DType dtype, int64_t max_tokens);

  // Empties the cache, or keeps its first `length` tokens.
  void reset(int64_t length = 0);
  int64_t length() const;
  int64_t max_tokens() const;
  // Appends tokens to the context and returns the logits [V] f32 behind the last one, valid until the next call. The
  // bits do not depend on how a context is cut into calls. Allocates nothing.
  std::span<const float> append(std::span<const int32_t> ids);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How a token is drawn. temperature 0: the most likely one (the smallest id among equals). Else logits / temperature,
// the top_k most likely (0: all), of those the smallest set whose probability reaches top_p (1: all).
struct SamplingSettings {
  double temperature = 1, top_p = 1;
  int64_t top_k = 0, seed = 0;

  // temperature, top_k, top_p, seed
  void describe(config::Fields& fields);
};

// Draws token `index` of a generation from Philox(seed, index): the same settings and logits give the same token.
// Exit::kNonFinite for a logit that is NaN or +Inf, Exit::kInternal for settings out of range.
int32_t draw_token(std::span<const float> logits, const SamplingSettings& settings, uint64_t index);

}  // namespace mantissa
