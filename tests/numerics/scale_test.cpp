// Scales: golden values of TransformerEngine's formulas, E8M0, NVFP4's two levels, exactness over all BF16 amaxes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/block_scale.h"

namespace mantissa {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMaxBf16 = 0x1.fep127f;

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Row {
  float amax;
  uint32_t e4m3, inverse, pow2, e5m2;
  int e8m0_e4m3, e8m0_e5m2;
  uint32_t nvfp4;
};

const Row kRows[] = {
    {0.0f, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 0, 0, 0x3F800000},
    {1.0f, 0x43E00000, 0x3B124925, 0x43800000, 0x47600000, 119, 112, 0x45280000},
    {3.0f, 0x43155555, 0x3BDB6DB7, 0x43000000, 0x46955555, 120, 113, 0x44600000},
    {447.99997f, 0x3F800001, 0x3F7FFFFE, 0x3F800000, 0x43000001, 127, 120, 0x40C00001},
    {448.0f, 0x3F800000, 0x3F800000, 0x3F800000, 0x43000000, 127, 120, 0x40C00000},
    {450.0f, 0x3F7EDCBB, 0x3F809249, 0x3F000000, 0x42FEDCBB, 128, 121, 0x40BF258C},
    {0x1p-7f, 0x47600000, 0x37924925, 0x47000000, 0x4AE00000, 112, 105, 0x48A80000},
    {1e-38f, 0x7F7FFFFF, 0x00200000, 0x7F000000, 0x7F7FFFFF, 0, 0, 0x7F7FFFFF},
    {kMaxBf16, 0x03E0E0E1, 0x7B11B6DB, 0x03800000, 0x0760E0E1, 247, 240, 0x0528A8A9},
    {kInf, 0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000, 254, 254, 0x3F800000},
};

TEST(Scale, GoldenRows) {
  for (const Row& row : kRows) {
    const float scale = compute_scale_from_amax(row.amax, kMaxE4M3, false, kScaleForInfF32);
    EXPECT_EQ(bits(scale), row.e4m3) << row.amax;
    EXPECT_EQ(bits(1.0f / scale), row.inverse) << row.amax;
    EXPECT_EQ(bits(compute_scale_from_amax(row.amax, kMaxE4M3, true, kScaleForInfF32)), row.pow2) << row.amax;
    EXPECT_EQ(bits(compute_scale_from_amax(row.amax, kMaxE5M2, false, kScaleForInfF32)), row.e5m2) << row.amax;
    EXPECT_EQ(mxfp8_exponent(row.amax, kInverseMaxE4M3), row.e8m0_e4m3) << row.amax;
    EXPECT_EQ(mxfp8_exponent(row.amax, kInverseMaxE5M2), row.e8m0_e5m2) << row.amax;
    EXPECT_EQ(bits(nvfp4_tensor_scale(row.amax).encode), row.nvfp4) << row.amax;
  }
  EXPECT_EQ(compute_scale_from_amax(kNan, kMaxE4M3, true, kScaleForInfF32), 1.0f);
  // The largest value of a BF16 source stands in for an overflowing block scale.
  EXPECT_EQ(bits(compute_scale_from_amax(1e-38f, kMaxE4M3, false, kScaleForInfBF16)), 0x7F7F0000u);
  EXPECT_EQ(bits(compute_scale_from_amax(1e-38f, kMaxE4M3, true, kScaleForInfBF16)), 0x7F000000u);
  EXPECT_EQ(bits(kInverseMaxE4M3), 0x3B124925u);
  EXPECT_EQ(bits(kInverseMaxE5M2), 0x37924925u);
}

TEST(Scale, GoldenNvfp4Block) {
  const Nvfp4TensorScale tensor = nvfp4_tensor_scale(10.0f);
  EXPECT_EQ(bits(tensor.encode), 0x43866666u);
  EXPECT_EQ(bits(tensor.decode), 0x3B73CF3Eu);
  EXPECT_EQ(3.0f * tensor.per_block, 134.39999f);
  const uint8_t block = nvfp4_block_scale(3.0f, tensor.per_block);
  EXPECT_EQ(block, 0x70);
  EXPECT_EQ(decode_e4m3(block), 128.0f);
  EXPECT_EQ(bits(nvfp4_encode_scale(block, tensor.decode)), 0x40066666u);
  EXPECT_EQ(nvfp4_encode_scale(0, tensor.decode), kFloatMax);
  EXPECT_EQ(nvfp4_block_scale(0.0f, tensor.per_block), 0);
  EXPECT_EQ(bits(1.0f / 7225344.0f), 0x34149B93u);  // 1 / 2688², the GEMM's factor
}

TEST(Scale, Nvfp4BlockOfTheTensorAmaxScalesTo448) {
  for (uint32_t b = 1; b < 0x7f80; ++b) {
    const float amax = std::bit_cast<float>(b << 16);
    if (2688.0f / amax > kFloatMax) continue;  // the tensor scale is clipped there
    ASSERT_EQ(nvfp4_block_scale(amax, nvfp4_tensor_scale(amax).per_block), 0x7e) << amax;
  }
}

TEST(Scale, PowersOfTwoAreTheLargestThatFit) {
  for (uint32_t b = 1; b < 0x7f80; ++b) {
    const float amax = std::bit_cast<float>(b << 16);
    const double quotient = 448.0 / amax;
    const float pow2 = compute_scale_from_amax(amax, kMaxE4M3, true, kScaleForInfBF16);
    if (quotient < 0x1p127) {
      ASSERT_EQ(pow2, std::exp2(std::floor(std::log2(quotient)))) << amax;
    }
    // Round-up: the smallest exponent with amax <= 448 * 2^(E-127).
    const int exponent = mxfp8_exponent(amax, kInverseMaxE4M3);
    ASSERT_LE(amax, std::ldexp(448.0, exponent - 127)) << amax;
    if (exponent > 0) {
      ASSERT_GT(amax, std::ldexp(448.0, exponent - 128)) << amax;
      ASSERT_EQ(pow2, std::ldexp(1.0, 127 - exponent)) << amax;  // blockwise and MXFP8 share the rule
    }
  }
}

TEST(Scale, E8M0) {
  EXPECT_EQ(encode_e8m0(0.0f), 0);
  EXPECT_EQ(encode_e8m0(0x1p-127f), 0);
  EXPECT_EQ(encode_e8m0(std::nextafter(0x1p-127f, 1.0f)), 1);
  EXPECT_EQ(encode_e8m0(0x1p-126f), 1);
  EXPECT_EQ(encode_e8m0(1.0f), 127);
  EXPECT_EQ(encode_e8m0(std::nextafter(1.0f, 2.0f)), 128);
  EXPECT_EQ(encode_e8m0(0x1p127f), 254);
  EXPECT_EQ(encode_e8m0(kFloatMax), 254);
  EXPECT_EQ(encode_e8m0(kInf), 254);
  EXPECT_EQ(encode_e8m0(kNan), 255);
  for (int b = 0; b < 255; ++b) {
    const auto code = static_cast<uint8_t>(b);
    EXPECT_EQ(decode_e8m0(code), std::ldexp(1.0, b - 127));
    EXPECT_EQ(reciprocal_e8m0(code), std::ldexp(1.0, 127 - b));
    EXPECT_EQ(encode_e8m0(decode_e8m0(code)), b);
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
  EXPECT_TRUE(std::isnan(reciprocal_e8m0(255)));
}

// The definition over every non-negative finite float.
TEST(SlowScale, E8M0EveryFloat) {
  int64_t wrong = 0;
  double power = std::ldexp(1.0, -127);
  int code = 0;
  for (uint32_t u = 0; u < 0x7f800000u; ++u) {
    const float x = std::bit_cast<float>(u);
    while (x > power && code < 254) power *= 2, ++code;
    wrong += encode_e8m0(x) != code;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Scale, AmaxDropsNanAndKeepsInf) {
  uint32_t a = 0;
  for (float x : {1.0f, -3.0f, kNan, 2.0f}) a = amax_bits(a, x);
  EXPECT_EQ(std::bit_cast<float>(a), 3.0f);
  EXPECT_EQ(std::bit_cast<float>(amax_bits(a, -kInf)), kInf);
}

}  // namespace
}  // namespace mantissa
