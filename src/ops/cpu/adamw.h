// CPU kernel of adamw.h.
#pragma once

#include "base/philox.h"
#include "ops/cpu/dispatch.h"

namespace mantissa {

// p -= decay p; p -= step_size m / (sqrt(v) / sqrt_correction2 + eps). Factors are computed in double and rounded once.
struct AdamwArgs {
  int64_t n;
  DType param_type, grad_type, state_type;
  void* param;
  void* copy;  // BF16 or null
  const void* grad;
  void *m, *v;
  float *m_scale, *v_scale;  // of 8-bit moments, else null
  float grad_scale, decay;   // decay = lr * weight_decay
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, sqrt_correction2, eps;  // lr / (1 - beta1^t), sqrt(1 - beta2^t)
  bool stochastic;
  RandomKey key;
};

MANTISSA_CPU_KERNEL(int64_t adamw(const AdamwArgs& a))

}  // namespace mantissa
