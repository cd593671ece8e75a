#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace mantissa {
namespace {

// Digests as Python's xxhash 3.6 prints them.
TEST(Checksum, IsXxh3Of128Bits) {
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(checksum_of("abc"), "06b05ab6733a618578af5f94892f3950");
}

TEST(Checksum, PiecesGiveTheWhole) {
  std::string bytes;
  for (int i = 0; i < 5 * 251; ++i) bytes += static_cast<char>(i % 251);
  Checksum sum;
  for (size_t at = 0, step = 0; at < bytes.size(); at += step, ++step)
    sum.update(std::as_bytes(std::span(bytes)).subspan(at, std::min(step, bytes.size() - at)));
  EXPECT_EQ(sum.hex(), "a939d5319378d3c4acaa4ac9c85b4031");
  EXPECT_EQ(sum.hex(), checksum_of(bytes));
}

}  // namespace
}  // namespace mantissa
