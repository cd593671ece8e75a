// Power-of-two block scales E8M0: byte b stands for 2^(b-127), 255 for NaN; there is no zero. OCP Microscaling Formats
// v1.0.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

// The smallest power of two >= x, for x >= 0: the exponent is rounded up. 0 -> 2^-127; beyond 2^127, Inf -> 254; NaN ->
// 255.
MANTISSA_HD uint8_t encode_e8m0(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t exponent = u >> 23, fraction = u & 0x7fffffu;
  const uint32_t up = exponent == 0 ? (fraction > 0x400000u ? 1u : 0u) : (fraction != 0 ? 1u : 0u);
  const uint32_t rounded = exponent + up;
  const uint32_t finite = rounded < 254u ? rounded : 254u;
  return static_cast<uint8_t>(u > 0x7f800000u ? 255u : finite);
}

MANTISSA_HD float decode_e8m0(uint8_t code) {
  const uint32_t b = code;
  const uint32_t tiny_or_nan = b == 0 ? 0x00400000u : 0x7fc00000u;
  return std::bit_cast<float>(b == 0 || b == 255 ? tiny_or_nan : b << 23);
}

// 2^(127-b), what elements are multiplied by before the cast.
MANTISSA_HD float reciprocal_e8m0(uint8_t code) {
  const uint32_t b = code;
  const uint32_t tiny_or_nan = b == 254 ? 0x00400000u : 0x7fc00000u;
  return std::bit_cast<float>(b >= 254 ? tiny_or_nan : (254u - b) << 23);
}

}  // namespace mantissa
