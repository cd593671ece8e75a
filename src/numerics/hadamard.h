// The 16-point Hadamard transform with fixed random signs that NVFP4 applies along tokens before the wgrad operands are
// cast (arXiv 2509.25149): y_j = 1/4 sum_i x_i s_i (-1)^popcount(i & j). Orthogonal: it cancels in the product.
#pragma once

#include <cstdint>
#include <utility>

#include "numerics/bf16.h"

namespace mantissa {

inline constexpr int kHadamardSize = 16;
inline constexpr uint32_t kHadamardSigns = 0xD7E8u;  // bit i set: s_i = -1 (TransformerEngine's vector)

// s_i / 4, exact on every BF16.
MANTISSA_HD constexpr float hadamard_factor(int i) { return (kHadamardSigns >> i) & 1u ? -0.25f : 0.25f; }

namespace detail {

// Butterflies (a, b) -> (a + b, a - b) of all indices that differ in the bit `span`, written out without a loop so that
// a loop over columns around it becomes vector code.
template <int span, int... pair>
MANTISSA_HD void hadamard_round(float (&v)[kHadamardSize], std::integer_sequence<int, pair...>) {
  const auto butterfly = [](float& a, float& b) __attribute__((always_inline)) {
    const float sum = a + b;
    b = a - b;
    a = sum;
  };
  (butterfly(v[pair / span * 2 * span + pair % span], v[pair / span * 2 * span + pair % span + span]), ...);
}

}  // namespace detail

// v_j = sum_i v_i (-1)^popcount(i & j), in FP32 and in this order on every backend. The sums are exact for BF16 inputs
// within 2^12 of each other; a tensor core's FP32 accumulation rounds at the same place.
MANTISSA_HD void hadamard_sums(float (&v)[kHadamardSize]) {
  constexpr auto pairs = std::make_integer_sequence<int, kHadamardSize / 2>{};
  detail::hadamard_round<1>(v, pairs);
  detail::hadamard_round<2>(v, pairs);
  detail::hadamard_round<4>(v, pairs);
  detail::hadamard_round<8>(v, pairs);
}

MANTISSA_HD void hadamard16(const bf16 (&x)[kHadamardSize], bf16 (&y)[kHadamardSize]) {
  float v[kHadamardSize];
  for (int i = 0; i < kHadamardSize; ++i) v[i] = to_float(x[i]) * hadamard_factor(i);
  hadamard_sums(v);
  for (int i = 0; i < kHadamardSize; ++i) y[i] = to_bf16(v[i]);
}

}  // namespace mantissa
