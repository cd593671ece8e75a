// FP8 and FP4 codecs against a search over the decoded values, the golden values, and all floats.
#include <gtest/gtest.h>

#include <limits>

#include "base/parallel.h"
#include "numerics/bf16.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"
#include "tests/numerics/codec_reference.h"

namespace mantissa {
namespace {

using namespace test;

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Codec, DecodesEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t magnitude = code & 0x7f;
    const double sign = code & 0x80 ? -1 : 1;
    const float e4m3 = decode_e4m3(static_cast<uint8_t>(code)), e5m2 = decode_e5m2(static_cast<uint8_t>(code));
    if (magnitude == 0x7f)
      EXPECT_TRUE(std::isnan(e4m3)) << code;
    else
      EXPECT_EQ(e4m3, sign * kE4M3Format.value(magnitude)) << code;
    if (magnitude > 0x7c)
      EXPECT_TRUE(std::isnan(e5m2)) << code;
    else if (magnitude == 0x7c)
      EXPECT_EQ(e5m2, sign * kInf);
    else
      EXPECT_EQ(e5m2, sign * kE5M2Format.value(magnitude)) << code;
  }
  const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(decode_e2m1(code), e2m1[code]);
    EXPECT_EQ(decode_e2m1(code + 8), -e2m1[code]);
    EXPECT_TRUE(std::signbit(decode_e2m1(code + 8)));
  }
}

// Every BF16 value as an input: 65536 of them, special values included.
TEST(Codec, RoundsEveryBf16ToTheNearestValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = from_bits(bits << 16);
    ASSERT_EQ(encode_e4m3(x), kE4M3Format.encode(x)) << x << " bf16 " << bits;
    ASSERT_EQ(encode_e5m2(x), kE5M2Format.encode(x)) << x << " bf16 " << bits;
    ASSERT_EQ(encode_e2m1(x), kE2M1Format.encode(x)) << x << " bf16 " << bits;
  }
}

TEST(Codec, CodesOfTheirOwnValuesStay) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(encode_e4m3(decode_e4m3(byte)), (code & 0x7f) == 0x7f ? 0x7f : code);
    EXPECT_EQ(encode_e5m2(decode_e5m2(byte)), (code & 0x7f) > 0x7c ? 0x7f : (code & 0x7f) == 0x7c ? code - 1 : code);
    EXPECT_EQ(encode_e2m1(decode_e2m1(byte)), code & 15);
  }
}

struct Golden {
  float x;
  uint8_t code;
};

TEST(Codec, GoldenE4M3) {
  const float tie = 0x1p-10f;  // half the smallest subnormal
  const Golden rows[] = {{tie, 0x00},   {std::nextafter(tie, 1.0f), 0x01},
                         {17, 0x58},    {18, 0x59},
                         {19, 0x5A},    {432, 0x7E},
                         {448, 0x7E},   {464, 0x7E},
                         {1e30f, 0x7E}, {kInf, 0x7E},
                         {-kInf, 0xFE}, {kNan, 0x7F},
                         {0.0f, 0x00},  {-0.0f, 0x80},
                         {-tie, 0x80},  {-1e-44f, 0x80}};
  for (const Golden& row : rows) EXPECT_EQ(encode_e4m3(row.x), row.code) << row.x;
}

TEST(Codec, GoldenE5M2) {
  const Golden rows[] = {{480, 0x60},   {1e30f, 0x7B}, {kInf, 0x7B},     {-kInf, 0xFB},
                         {kNan, 0x7F},  {-0.0f, 0x80}, {0x1p-17f, 0x00}, {std::nextafter(0x1p-17f, 1.0f), 0x01},
                         {57344, 0x7B}, {61440, 0x7B}};
  for (const Golden& row : rows) EXPECT_EQ(encode_e5m2(row.x), row.code) << row.x;
}

TEST(Codec, GoldenE2M1) {
  const Golden rows[] = {{0.25f, 0}, {0.2500001f, 1}, {0.75f, 2},      {1.25f, 2},  {1.75f, 4}, {2.5f, 4},
                         {3.5f, 6},  {5, 6},          {5.0000005f, 7}, {-0.25f, 8}, {-0.0f, 8}, {kNan, 7},
                         {-kNan, 7}, {kInf, 7},       {-kInf, 15},     {-1e-30f, 8}};
  for (const Golden& row : rows) EXPECT_EQ(encode_e2m1(row.x), row.code) << row.x;
  EXPECT_EQ(pack_e2m1(0x3, 0xA), 0xA3);  // even index in the low nibble
}

// The definition of stochastic rounding in real arithmetic, for every BF16 value and every random byte.
TEST(Codec, StochasticE2M1FollowsItsDefinition) {
  const auto step = [](double a) { return a < 2 ? 0.5 : a < 4 ? 1.0 : 2.0; };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = from_bits(bits << 16);
    const uint32_t sign = std::signbit(x) ? 8 : 0;
    for (int random = 0; random < 256; ++random) {
      uint32_t expected = 7;
      if (!std::isnan(x)) {
        const float a = std::abs(x);
        const double t = std::fma(static_cast<float>(random) / 256.0f, static_cast<float>(step(a)), a);
        const double q = std::isinf(t) ? 6.0 : std::min(6.0, std::floor(t / step(t)) * step(t));
        expected = sign | kE2M1Format.nearest(q);
        ASSERT_EQ(kE2M1Format.value(expected & 7), q);
      }
      ASSERT_EQ(encode_e2m1_stochastic(x, static_cast<uint8_t>(random)), expected) << x << " random " << random;
    }
  }
}

TEST(Codec, StochasticE2M1IsUnbiasedAndAdjacent) {
  for (float x : {0.1f, 0.37f, 0.5f, 0.99f, 1.2f, 1.77f, 2.3f, 2.999f, 3.01f, 3.9f, 4.0f, 4.3f, 5.9f, -0.7f, -4.4f}) {
    double sum = 0;
    for (int random = 0; random < 256; ++random) {
      const float y = decode_e2m1(encode_e2m1_stochastic(x, static_cast<uint8_t>(random)));
      const double step = std::abs(x) < 2 ? 0.5 : std::abs(x) < 4 ? 1 : 2;
      EXPECT_LT(std::abs(y - x), step);
      sum += y;
    }
    const double step = std::abs(x) < 2 ? 0.5 : std::abs(x) < 4 ? 1 : 2;
    EXPECT_LE(std::abs(sum / 256 - x), step / 256) << x;
  }
}

// Every float: the codes are a monotone function of the magnitude, so each lies between two exact midpoints.
template <uint8_t (*encode)(float)>
int64_t count_wrong(const ElementFormat& format) {
  const std::vector<uint32_t> first = format.first_bits();
  const uint32_t sign_code = 1u << format.magnitude_bits();
  std::vector<int64_t> wrong(static_cast<size_t>(max_threads()), 0);
  for (uint32_t code = 0; code <= format.largest; ++code) {
    const uint32_t begin = first[code], end = code == format.largest ? 0x7f800001u : first[code + 1];
    parallel_for(end - begin, 1, [&](int64_t i0, int64_t i1) {
      int64_t bad = 0;
      for (int64_t i = i0; i < i1; ++i) {
        const uint32_t bits = begin + static_cast<uint32_t>(i);
        bad += encode(from_bits(bits)) != code;
        bad += encode(from_bits(bits | 0x80000000u)) != (code | sign_code);
      }
      wrong[static_cast<size_t>(thread_id())] += bad;
    });
  }
  int64_t sum = 0;
  for (uint32_t bits = 0x7f800001u; bits < 0x80000000u; ++bits)
    sum += (encode(from_bits(bits)) != format.nan) + (encode(from_bits(bits | 0x80000000u)) != format.nan);
  for (int64_t w : wrong) sum += w;
  return sum;
}

TEST(SlowCodec, EveryFloat) {
  EXPECT_EQ(count_wrong<encode_e4m3>(kE4M3Format), 0);
  EXPECT_EQ(count_wrong<encode_e5m2>(kE5M2Format), 0);
  EXPECT_EQ(count_wrong<encode_e2m1>(kE2M1Format), 0);
}

}  // namespace
}  // namespace mantissa
