// 8-bit moments: every code, every boundary between codes.
#include "numerics/moment8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mantissa::moment8 {
namespace {

// Largest values of a block: usual ones, the smallest that is kept, the largest of FP32.
constexpr float kMosts[] = {1.0f, 0.3f, 7.77e-5f, 1.234e-9f, kLeastMax, 1.7e19f, 3.4e38f};

TEST(Moment8, EveryCodeComesBack) {
  for (const float most : kMosts) {
    const float unit = unit_of<127>(most), inverse = inverse_of(unit);
    EXPECT_NEAR(decode_m(127, unit) / most, 1, 3e-7);
    EXPECT_EQ(decode_m(255, unit), -decode_m(127, unit));
    for (uint32_t code = 0; code < 256; ++code) ASSERT_EQ(encode_m(decode_m(code, unit), inverse), code) << most;
    const float root_unit = unit_of<255>(most), root_inverse = inverse_of(root_unit);
    EXPECT_NEAR(square_of(255) * root_unit / most, 1, 3e-7);
    for (uint32_t code = 0; code < 256; ++code)
      ASSERT_EQ(encode_root(square_of(code) * root_unit, root_inverse), code) << most;
    // As an update meets them: from v, whose root is taken again.
    if (most < 1e-14f || most > 1e19f) continue;
    for (uint32_t code = 0; code < 256; ++code)
      ASSERT_EQ(encode_root(std::sqrt(decode_v(code, root_unit)), root_inverse), code) << most;
  }
}

TEST(Moment8, CodesRiseWithTheirValues) {
  for (uint32_t code = 1; code < 128; ++code) {
    EXPECT_GT(decode_m(code, 1), decode_m(code - 1, 1));
    EXPECT_LT(decode_m(code + 128, 1), decode_m(code + 127, 1));
  }
  for (uint32_t code = 1; code < 256; ++code) EXPECT_GT(decode_v(code, 1), decode_v(code - 1, 1));
}

// Codes k and k + 1 part at k² + k + 1/2, to the bit.
TEST(Moment8, RoundsToTheNearestValue) {
  for (uint32_t k = 0; k < 255; ++k) {
    const auto middle = static_cast<float>(k * k + k) + 0.5f;
    EXPECT_EQ(nearest_root(middle), k + 1);
    EXPECT_EQ(nearest_root(std::nextafter(middle, 0.0f)), k);
    EXPECT_EQ(nearest_root(static_cast<float>(k * k)), k);
  }
  uint32_t last = 0;
  for (float y = 0; y < 65026; y = y < 1 ? y + 1e-3f : y * 1.0001f) {
    const uint32_t k = nearest_root(y);
    EXPECT_GE(k, last);
    last = k;
    const double error = std::fabs(double{y} - static_cast<double>(k) * k);
    EXPECT_LE(error, std::fabs(double{y} - (k + 1.0) * (k + 1.0))) << y;
    if (k > 0) {
      EXPECT_LE(error, std::fabs(double{y} - (k - 1.0) * (k - 1.0))) << y;
    }
  }
  EXPECT_EQ(last, 255u);
}

TEST(Moment8, ZeroIsExactAndAPositiveSecondMomentStaysPositive) {
  const float inverse = inverse_of(unit_of<255>(1.0f));
  EXPECT_EQ(encode_m(0, inverse), 0u);
  EXPECT_EQ(decode_m(0, 1), 0.0f);
  EXPECT_EQ(encode_root(0, inverse), 0u);
  for (float root : {1e-6f, 1e-20f, 1e-38f}) EXPECT_EQ(encode_root(root, inverse), 1u);
  EXPECT_EQ(unit_of<127>(0.0f), 0.0f);
  EXPECT_EQ(inverse_of(0.0f), 0.0f);
  EXPECT_EQ(encode_m(1e-38f, inverse_of(unit_of<127>(1e-38f))), 0u);
  // The root of the smallest FP32 value has a unit.
  EXPECT_GT(unit_of<255>(std::sqrt(std::numeric_limits<float>::denorm_min())), 0.0f);
}

// A block that overflowed stays defined: its largest root is infinite, as in FP32.
TEST(Moment8, InfinityHasCodes) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float unit = unit_of<255>(inf), inverse = inverse_of(unit);
  EXPECT_EQ(unit, inf);
  EXPECT_EQ(encode_root(inf, inverse), 1u);
  EXPECT_EQ(encode_root(1.0f, inverse), 1u);
  EXPECT_EQ(decode_v(1, unit), inf);
}

}  // namespace
}  // namespace mantissa::moment8
