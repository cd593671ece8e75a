// Stochastic rounding to bfloat16, for weights that are kept in BF16: Zamirai et al., "Revisiting BFloat16 training",
// arXiv 2010.06192.
#pragma once

#include "numerics/bf16.h"

namespace mantissa {

// Rounds away from zero with the probability of the distance covered: 16 random bits are added below the last place and
// the sum is truncated. Unbiased; a value that BF16 holds never moves. Beyond the largest BF16 it may become Inf, as
// with rounding to nearest; Inf stays, NaN stays NaN.
MANTISSA_HD bf16 to_bf16_stochastic(float x, uint16_t random) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t moved = (u + random) >> 16;
  const uint32_t kept = (u >> 16) | ((u & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u);
  return bf16{static_cast<uint16_t>((u & 0x7f800000u) == 0x7f800000u ? kept : moved)};
}

}  // namespace mantissa
