// FP8 codes, E4M3 (no Inf, largest 448) and E5M2 (largest 57344): Micikevicius et al., "FP8 formats for deep learning",
// arXiv 2209.05433. Encoders round to nearest even, keep subnormals and the sign of zero, clip everything beyond the
// largest finite value (Inf too) to it, and turn NaN into 0x7F: what the GPU's saturating conversions do.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

inline constexpr float kMaxE4M3 = 448.0f;
inline constexpr float kMaxE5M2 = 57344.0f;

namespace detail {

// All ones if the magnitude bits are a NaN's; arithmetic, because a select on narrow lanes costs vector code dearly.
MANTISSA_HD uint32_t nan_mask(uint32_t a) { return static_cast<uint32_t>(static_cast<int32_t>(0x7f800000u - a) >> 31); }

// Magnitude code of |x| (bits `a`) in a format of `mantissa` bits and exponent `bias`: above the smallest normal the
// mantissa is rounded on the integer bits, below it by adding a float whose unit in the last place is the format's
// smallest subnormal.
template <int mantissa, int bias>
MANTISSA_HD uint32_t round_magnitude(uint32_t a) {
  constexpr int shift = 23 - mantissa;
  constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
  constexpr uint32_t magic = static_cast<uint32_t>(127 + 23 + 1 - bias - mantissa) << 23;
  const uint32_t normal = ((a + ((1u << (shift - 1)) - 1u) + ((a >> shift) & 1u)) >> shift) -
                          (static_cast<uint32_t>(127 - bias) << mantissa);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(magic)) - magic;
  return a < smallest_normal ? subnormal : normal;
}

template <int mantissa, int bias, uint32_t largest>
MANTISSA_HD uint8_t encode_fp8(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t a = u & 0x7fffffffu;
  const uint32_t magnitude = round_magnitude<mantissa, bias>(a);
  const uint32_t clipped = magnitude < largest ? magnitude : largest;
  const uint32_t code = clipped | ((u >> 24) & 0x80u);
  const uint32_t nan = nan_mask(a);
  return static_cast<uint8_t>((code & ~nan) | (0x7fu & nan));
}

// Value of the magnitude bits of a code; the top exponent is an ordinary binade here.
template <int mantissa, int bias>
MANTISSA_HD float decode_magnitude(uint32_t magnitude) {
  const float normal = std::bit_cast<float>((magnitude << (23 - mantissa)) + (static_cast<uint32_t>(127 - bias) << 23));
  const float step = std::bit_cast<float>(static_cast<uint32_t>(128 - bias - mantissa) << 23);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * step;
  return magnitude < (1u << mantissa) ? subnormal : normal;
}

MANTISSA_HD float with_sign(float magnitude, uint32_t sign_bit_31) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign_bit_31);
}

}  // namespace detail

MANTISSA_HD uint8_t encode_e4m3(float x) { return detail::encode_fp8<3, 7, 0x7e>(x); }
MANTISSA_HD uint8_t encode_e5m2(float x) { return detail::encode_fp8<2, 15, 0x7b>(x); }

MANTISSA_HD float decode_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float value = detail::decode_magnitude<3, 7>(magnitude);
  const float finite_or_nan = magnitude == 0x7fu ? std::bit_cast<float>(0x7fc00000u) : value;
  return detail::with_sign(finite_or_nan, (code & 0x80u) << 24);
}

// 0x7C is Inf, above it NaN.
MANTISSA_HD float decode_e5m2(uint8_t code) {
  const uint32_t magnitude = code & 0x7fu;
  const float value = detail::decode_magnitude<2, 15>(magnitude);
  const float special = std::bit_cast<float>(magnitude == 0x7cu ? 0x7f800000u : 0x7fc00000u);
  return detail::with_sign(magnitude >= 0x7cu ? special : value, (code & 0x80u) << 24);
}

}  // namespace mantissa
