// bfloat16: the upper half of an IEEE binary32; conversion rounds to nearest even and keeps NaN a NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

struct bf16 {
  uint16_t bits;
};

MANTISSA_HD float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
MANTISSA_HD float to_float(float x) { return x; }

MANTISSA_HD bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  return bf16{static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : rounded)};
}

// The value of x after rounding to T.
template <class T>
MANTISSA_HD T from_float(float x);
template <>
MANTISSA_HD float from_float<float>(float x) {
  return x;
}
template <>
MANTISSA_HD bf16 from_float<bf16>(float x) {
  return to_bf16(x);
}

}  // namespace mantissa
