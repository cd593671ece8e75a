// CPU kernels of ops/rope.h on tokens [begin, end); arguments are checked by the caller. E is bf16 or float.
#pragma once

#include "numerics/bf16.h"
#include "ops/cpu/dispatch.h"
#include "ops/rope.h"

namespace mantissa {

template <class E>
struct RopeJob {
  HeadLayout layout;
  const float* cos_sin = nullptr;      // [P,D]: cos of the D/2 angles, then sin
  const int32_t* positions = nullptr;  // [T]
  // Forward: y = f(x). Backward: dx = f'(dy, x).
  E* y = nullptr;         // [T, (N + 2 KV) D]; backward: dx
  const E* dy = nullptr;  // backward only
  const E* x = nullptr;
  // The per-head norm; unused without it.
  const E* q_weight = nullptr;  // [D]
  const E* k_weight = nullptr;  // [D]
  float* rstd = nullptr;        // [T, N + KV]: written forward, read backward
  float eps = 0;
};

MANTISSA_CPU_KERNEL(template <class E> void rope(const RopeJob<E>& job, bool inverse, int64_t begin, int64_t end);
                    template <class E> void qk_norm_rope_fwd(const RopeJob<E>& job, int64_t begin, int64_t end);
                    // dweight[2,D]: gradients of q_weight and k_weight summed over these tokens, overwritten.
                    template <class E>
                    void qk_norm_rope_bwd(const RopeJob<E>& job, float* dweight, int64_t begin, int64_t end);)

}  // namespace mantissa
