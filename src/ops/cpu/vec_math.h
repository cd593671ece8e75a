// exp and sigmoid without branches or tables, so that loops over them vectorise on every instruction set. No fma: all
// instruction sets give the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

// e^x to 1 ulp; +Inf above 88.7228, 0 where the result would be subnormal, NaN stays NaN. Range reduction by Cody and
// Waite, x = k ln 2 + r; e^r = 1 + r + r² q(r) with a minimax q of degree 4, relative error 2^-28 on |r| <= ln(2)/2.
MANTISSA_HD float vec_exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which ends in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float q = 1.38145984e-3f;
  q = q * r + 8.36871733e-3f;
  q = q * r + 4.16683881e-2f;
  q = q * r + 1.66665206e-1f;
  q = q * r + 4.99999934e-1f;
  const float p = (q * r) * r + r + 1.0f;
  // p * 2^k: k is added to the exponent.
  const float y = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  const float above = x < -87.33654f ? 0.0f : y;
  return x > 88.72283f ? __builtin_inff() : above;
}

// 1 / (1 + e^-x).
MANTISSA_HD float vec_sigmoid(float x) { return 1.0f / (1.0f + vec_exp(-x)); }

}  // namespace mantissa
