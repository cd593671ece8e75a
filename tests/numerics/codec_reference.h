// An independent, slow description of an element format: all its values, and where rounding to nearest even changes
// code.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace mantissa::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct ElementFormat {
  int exponent_bits, mantissa_bits, bias;
  uint32_t largest;  // code of the largest finite magnitude
  uint32_t nan;      // code that NaN becomes

  static double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
  }
  int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  double value(uint32_t magnitude) const {
    const uint32_t exponent = magnitude >> mantissa_bits, fraction = magnitude & ((1u << mantissa_bits) - 1);
    if (exponent == 0) return fraction * power_of_two(1 - bias - mantissa_bits);
    return ((1u << mantissa_bits) + fraction) * power_of_two(static_cast<int>(exponent) - bias - mantissa_bits);
  }
  // The code nearest to |x|, ties to even: values grow with codes, so the two neighbours decide.
  uint32_t nearest(double magnitude) const {
    uint32_t below = 0, above = largest;
    if (magnitude >= value(largest)) return largest;
    while (above - below > 1) {
      const uint32_t middle = (below + above) / 2;
      (value(middle) <= magnitude ? below : above) = middle;
    }
    const double down = magnitude - value(below), up = value(above) - magnitude;
    if (down == up) return below % 2 == 0 ? below : above;
    return down < up ? below : above;
  }
  uint32_t encode(float x) const {
    if (std::isnan(x)) return nan;
    const uint32_t sign = std::signbit(x) ? 1u << magnitude_bits() : 0u;
    return sign | nearest(std::abs(static_cast<double>(x)));
  }
  // first_bits()[c]: bits of the smallest float magnitude that rounds to code c or above.
  std::vector<uint32_t> first_bits() const {
    std::vector<uint32_t> first{0};
    for (uint32_t code = 1; code <= largest; ++code) {
      const double middle = (value(code - 1) + value(code)) / 2;  // a float exactly
      first.push_back(std::bit_cast<uint32_t>(static_cast<float>(middle)) + (code % 2 == 0 ? 0u : 1u));
    }
    return first;
  }
  // The same by search in first_bits(), for many values.
  uint32_t encode(float x, const std::vector<uint32_t>& first) const {
    if (std::isnan(x)) return nan;
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 31;
    const auto above = std::upper_bound(first.begin(), first.end(), bits & 0x7fffffffu);
    return sign << magnitude_bits() | static_cast<uint32_t>(above - first.begin() - 1);
  }
};

inline constexpr ElementFormat kE4M3Format{4, 3, 7, 0x7e, 0x7f};
inline constexpr ElementFormat kE5M2Format{5, 2, 15, 0x7b, 0x7f};
inline constexpr ElementFormat kE2M1Format{2, 1, 1, 7, 7};

}  // namespace mantissa::test
