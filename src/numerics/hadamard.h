// The 16-point Hadamard transform with fixed random signs that NVFP4 applies along tokens before the wgrad operands are
// cast (arXiv 2509.25149): y_j = 1/4 sum_i x_i s_i (-1)^popcount(i & j). Orthogonal: it cancels in the product.
#pragma once

#include <cstdint>

#include "numerics/bf16.h"

namespace mantissa {

inline constexpr int kHadamardSize = 16;
inline constexpr uint32_t kHadamardSigns = 0xD7E8u;  // bit i set: s_i = -1 (TransformerEngine's vector)

MANTISSA_HD double hadamard_signed(double x, int i) { return (kHadamardSigns >> i) & 1u ? -x : x; }

// One butterfly (a, b) -> (a + b, a - b) joins indices that differ in one bit; four rounds make the transform.
MANTISSA_HD void hadamard_butterfly(double& a, double& b) {
  const double sum = a + b;
  b = a - b;
  a = sum;
}

// The sum in double is exact for BF16 inputs within 2^40 of each other; it is rounded to FP32, then to BF16.
MANTISSA_HD bf16 hadamard_round(double sum) { return to_bf16(static_cast<float>(sum * 0.25)); }

MANTISSA_HD void hadamard16(const bf16 (&x)[kHadamardSize], bf16 (&y)[kHadamardSize]) {
  double v[kHadamardSize];
  for (int i = 0; i < kHadamardSize; ++i) v[i] = hadamard_signed(to_float(x[i]), i);
  for (int span = 1; span < kHadamardSize; span *= 2)
    for (int i = 0; i < kHadamardSize; ++i)
      if ((i & span) == 0) hadamard_butterfly(v[i], v[i + span]);
  for (int i = 0; i < kHadamardSize; ++i) y[i] = hadamard_round(v[i]);
}

}  // namespace mantissa
