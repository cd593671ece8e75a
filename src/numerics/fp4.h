// FP4 codes E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign bit; no Inf, no NaN. OCP Microscaling Formats v1.0.
// Two codes share a byte, the even index in the low nibble. NaN becomes +6, everything beyond 6 becomes ±6, -0 stays -0.
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
  const uint32_t code = clipped | ((u >> 28) & 8u);
  return static_cast<uint8_t>(a > 0x7f800000u ? 7u : code);
}

// Stochastic rounding with 8 random bits: |x| + (random/256) step is rounded down to the grid, so the code moves up with the
// probability of the distance covered, to within 1/256 of a step; values on the grid never move.
MANTISSA_HD uint8_t encode_e2m1_stochastic(float x, uint8_t random) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7fffffffu;
  const float magnitude = std::bit_cast<float>(a);
  const float step = a < 0x40000000u ? 0.5f : a < 0x40800000u ? 1.0f : 2.0f;
  // random * step / 256 is exact: one rounding, as a fused multiply-add has.
  const float moved = magnitude + static_cast<float>(static_cast<int32_t>(random)) * (step * 0.00390625f);
  const uint32_t t = std::bit_cast<uint32_t>(moved);
  const uint32_t normal = (t >> 22) - 252u;
  const uint32_t subnormal = t >= 0x3f000000u ? 1u : 0u;
  const uint32_t down = t < 0x3f800000u ? subnormal : normal;
  const uint32_t clipped = down < 7u ? down : 7u;
  const uint32_t code = clipped | ((u >> 28) & 8u);
  return static_cast<uint8_t>(a > 0x7f800000u ? 7u : code);
}

MANTISSA_HD float decode_e2m1(uint8_t code) {
  return detail::with_sign(detail::decode_magnitude<1, 1>(code & 7u), (code & 8u) << 28);
}

MANTISSA_HD uint8_t pack_e2m1(uint8_t even, uint8_t odd) { return static_cast<uint8_t>(even | (odd << 4)); }

}  // namespace mantissa
