#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mantissa {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(66.4 * 1024 * 1024 * 1024), "66.4 GiB");
  EXPECT_EQ(bytes_text(1024.0 * 1024 - 1), "1.0 MiB");
}

TEST(Units, Counts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(112), "112");
  EXPECT_EQ(count_text(999.6), "1 K");
  EXPECT_EQ(count_text(3.4e6), "3.4 M");
  EXPECT_EQ(count_text(1.7204e9), "1.72 B");
  EXPECT_EQ(count_text(81.94e6), "81.9 M");
  EXPECT_EQ(count_text(999.7e6), "1 B");
  EXPECT_EQ(count_text(-1500), "-1.5 K");
}

TEST(Units, GroupedDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(90955776), "90,955,776");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Units, Durations) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(18 * 60 + 56), "18:56");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(NAN), "-");
  EXPECT_EQ(duration_text(-1), "-");
  EXPECT_EQ(duration_text(INFINITY), "-");
}

TEST(Units, Percent) {
  EXPECT_EQ(percent_text(0.1731), "17.3%");
  EXPECT_EQ(percent_text(1, 0), "100%");
}

}  // namespace
}  // namespace mantissa
