// The floor of a training step: time per token = Σ GEMM FLOPs / rate + attention FLOPs / rate + bytes of everything
// else / bandwidth. The rates are what a library's default choice reaches on one H200, so the floor is a yardstick: an
// algorithm search can pass it.
#pragma once

#include <string>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

// Rates that a floor is made of. As it stands: those of an H200.
struct Yardstick {
  double scale = 1;              // of the table's GEMM and attention rates
  double flat_tflops = 0;        // above 0: the rate of every product instead, on a machine unlike the table's
  double bytes_per_s = 4.28e12;  // a device copy, read + write
  std::string origin = "H200";   // where the rates come from

  // BF16 y[M,N] = x[M,K] w[N,K]ᵀ and its two gradients at 16,384 tokens: the row of the table whose N and K are
  // nearest.
  double gemm_tflops(int64_t n, int64_t k) const;
  // BF16, counted causal; `length` is Σ s² / Σ s of the segments.
  double attention_forward_tflops(double length, int64_t head_dim) const;
  double attention_backward_tflops(double length, int64_t head_dim) const;
};

struct StepWork {
  ModelConfig model;
  double segment_length = 0;    // Σ s² / Σ s over the packed segments
  int64_t tokens_per_step = 0;  // between two updates
  ParamStoreOptions store;      // dtypes of weights, gradients and moments
};

struct StepFloor {
  double gemm_us = 0, logits_us = 0, attention_us = 0, rest_us = 0;  // per token
  double rest_bytes = 0;                                             // per token, the optimizer's share among them
  double optimizer_bytes = 0;                                        // per token

  double us_per_token() const { return gemm_us + logits_us + attention_us + rest_us; }
  double tokens_per_s() const { return 1e6 / us_per_token(); }
};

// Activations are BF16, each tensor read once and written once by whoever needs it: norms with the residual sum and its
// gradient, QK-norm with RoPE, activation, bias gradients, embedding, the loss in place; the optimizer reads gradients
// twice, weights and moments once.
StepFloor step_floor(const StepWork& work, const Yardstick& yardstick);

// Bytes of one update of all parameters as step_floor() counts them.
double update_bytes(int64_t parameters, const ParamStoreOptions& store);

}  // namespace mantissa
