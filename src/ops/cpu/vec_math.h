// exp and sigmoid without branches or tables, so that loops over them vectorise on every instruction set. No fma: all
// instruction sets give the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

// e^x to 1.5 ulp, also where the result is subnormal; +Inf above 88.7228, 0 below -104, NaN stays NaN. Range reduction
// by Cody and Waite, x = k ln 2 + r; degree-6 minimax polynomial of e^r on |r| <= ln(2)/2.
MANTISSA_HD float vec_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x > 89.0f ? 89.0f : x;
  x = x < -105.0f ? -105.0f : x;
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.98756912e-4f;
  p = p * r + 1.39819994e-3f;
  p = p * r + 8.33345205e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666657e-1f;
  p = p * r + 5.00000012e-1f;
  p = (p * r) * r + r + 1.0f;
  // 2^k in two factors: each is a normal number for k in [-152, 129].
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = n >> 1;
  const float a = std::bit_cast<float>((half + 127) << 23), b = std::bit_cast<float>((n - half + 127) << 23);
  return p * a * b;
}

// 1 / (1 + e^-x).
MANTISSA_HD float vec_sigmoid(float x) { return 1.0f / (1.0f + vec_exp(-x)); }

}  // namespace mantissa
