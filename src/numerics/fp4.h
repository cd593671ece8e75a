// FP4 codes E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign bit; no Inf, no NaN. OCP Microscaling Formats v1.0.
// Two codes share a byte, the even index in the low nibble. NaN becomes +6, everything beyond 6 becomes ±6, -0 stays
// -0.
#pragma once

#include "numerics/fp8.h"

namespace mantissa {

inline constexpr float kMaxE2M1 = 6.0f;

// Rounds to nearest, ties to the even mantissa.
MANTISSA_HD uint8_t encode_e2m1(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7fffffffu;
  const uint32_t magnitude = detail::round_magnitude<1, 1>(a);
  const uint32_t clipped = magnitude < 7u ? magnitude : 7u;
  return static_cast<uint8_t>(clipped | ((u >> 28) & 8u & ~detail::nan_mask(a)));
}

// Stochastic rounding with 8 random bits: |x| + (random/256) step is rounded down to the grid, so the code moves up
// with the probability of the distance covered, to within 1/256 of a step; values on the grid never move.
MANTISSA_HD uint8_t encode_e2m1_stochastic(float x, uint8_t random) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7fffffffu;
  const uint32_t c = a < 0x40c00000u ? a : 0x40c00000u;  // at most 6
  // From 1 on a step is 2^22 units in the last place, so the random bits are added to the bits: no rounding. Below 1
  // the step is 0.5 and the sum is rounded once, as a fused multiply-add has it.
  const uint32_t normal = ((c + (static_cast<uint32_t>(random) << 14)) >> 22) - 252u;
  const float doubled = (std::bit_cast<float>(c) + static_cast<float>(static_cast<int32_t>(random)) * 0x1p-9f) * 2.0f;
  const uint32_t subnormal = static_cast<uint32_t>(static_cast<int32_t>(doubled));
  const uint32_t magnitude = c < 0x3f800000u ? subnormal : normal;
  return static_cast<uint8_t>(magnitude | ((u >> 28) & 8u & ~detail::nan_mask(a)));
}

MANTISSA_HD float decode_e2m1(uint8_t code) {
  return detail::with_sign(detail::decode_magnitude<1, 1>(code & 7u), (code & 8u) << 28);
}

MANTISSA_HD uint8_t pack_e2m1(uint8_t even, uint8_t odd) { return static_cast<uint8_t>(even | (odd << 4)); }

}  // namespace mantissa
