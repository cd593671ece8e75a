// BF16 rounding (nearest and stochastic) and the Hadamard transform.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/bf16.h"
#include "numerics/hadamard.h"
#include "numerics/round.h"

namespace mantissa {
namespace {

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Round, Bf16NearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(from_bits(0x3f808000)).bits, 0x3f80);  // tie to even
  EXPECT_EQ(to_bf16(from_bits(0x3f818000)).bits, 0x3f82);
  EXPECT_EQ(to_bf16(from_bits(0x3f808001)).bits, 0x3f81);
  EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(from_bits(0x7f800001)))));
  for (uint32_t b = 0; b < 0x7f80; ++b) {  // between each value and its successor
    for (uint32_t low : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const uint32_t expected = low > 0x8000u || (low == 0x8000u && b % 2 == 1) ? b + 1 : b;
      ASSERT_EQ(to_bf16(from_bits(b << 16 | low)).bits, expected);
    }
  }
}

TEST(Round, StochasticBf16NeverMovesExactValues) {
  for (uint32_t b = 0; b < 65536; ++b)
    for (uint32_t random : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
      const float x = from_bits(b << 16);
      const bf16 y = to_bf16_stochastic(x, static_cast<uint16_t>(random));
      if (std::isnan(x))
        ASSERT_TRUE(std::isnan(to_float(y)));
      else
        ASSERT_EQ(y.bits, b);
    }
  EXPECT_TRUE(std::isnan(to_float(to_bf16_stochastic(from_bits(0x7f800001), 0xffff))));
}

// Over all 65536 draws the mean is the value itself, for either sign, subnormals included.
TEST(Round, StochasticBf16IsUnbiased) {
  for (float x : {1.0001f, 3.14159f, -2.71828f, 1e-3f, 123456.7f, -1e-30f, 1e-39f}) {
    const uint32_t below = std::bit_cast<uint32_t>(x) >> 16;
    int64_t up = 0;
    for (uint32_t random = 0; random < 65536; ++random) {
      const uint32_t y = to_bf16_stochastic(x, static_cast<uint16_t>(random)).bits;
      ASSERT_TRUE(y == below || y == below + 1);
      up += y == below + 1;
    }
    EXPECT_EQ(up, std::bit_cast<uint32_t>(x) & 0xffff) << x;
  }
}

// Values of one exponent range, so that every sum is exact.
TEST(Hadamard, MatchesItsMatrix) {
  uint32_t state = 12345;
  for (int trial = 0; trial < 1000; ++trial) {
    bf16 x[16], y[16];
    for (bf16& v : x) {
      state = state * 1664525u + 1013904223u;
      const float unit = static_cast<float>(state >> 8) * 0x1p-24f;
      v = to_bf16((state >> 7 & 1 ? -1.0f : 1.0f) * (0.02f + unit));
    }
    hadamard16(x, y);
    for (int j = 0; j < 16; ++j) {
      double sum = 0;
      for (int i = 0; i < 16; ++i) {
        const bool minus = (__builtin_popcount(static_cast<unsigned>(i & j)) + ((0xD7E8 >> i) & 1)) % 2 != 0;
        sum += (minus ? -0.25 : 0.25) * to_float(x[i]);
      }
      ASSERT_EQ(y[j].bits, to_bf16(static_cast<float>(sum)).bits);
    }
  }
}

TEST(Hadamard, SignVectorAndUnitNorm) {
  const int signs[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(hadamard_factor(i), 0.25f * static_cast<float>(signs[i]));
    bf16 x[16] = {}, y[16];
    x[i] = to_bf16(1.0f);
    hadamard16(x, y);
    for (const bf16& v : y) EXPECT_EQ(std::abs(to_float(v)), 0.25f);
    EXPECT_EQ(to_float(y[0]), 0.25f * static_cast<float>(signs[i]));
  }
}

}  // namespace
}  // namespace mantissa
