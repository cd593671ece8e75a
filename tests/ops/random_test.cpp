#include "ops/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace mantissa {
namespace {

// Box and Muller by the C library.
void exact_pair(uint32_t a, uint32_t b, float* out) {
  const double u = (static_cast<double>(a) + 0.5) / 4294967296.0, w = static_cast<double>(b) / 4294967296.0;
  const double r = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586 * w;
  out[0] = static_cast<float>(r * std::cos(angle));
  out[1] = static_cast<float>(r * std::sin(angle));
}

TEST(NormalValues, AreTheLibrarysBitsOnEveryInstructionSet) {
  const RandomKey key{11, 0, 5, DrawForm::kInit};
  constexpr int64_t kCount = int64_t{1} << 21;
  for (const Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    std::vector<float> values(kCount);
    normal_values(isa, key, 8, kCount, 0.02f, values.data());
    int64_t different = 0;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < kCount; i += 4) {
      const Random4 r = draw(key, static_cast<uint64_t>(2 + i / 4));
      float four[4];
      exact_pair(r.x[0], r.x[1], four);
      exact_pair(r.x[2], r.x[3], four + 2);
      for (size_t j = 0; j < 4; ++j) {
        const float got = values[static_cast<size_t>(i) + j];
        different += std::bit_cast<uint32_t>(got) != std::bit_cast<uint32_t>(0.02f * four[j]);
        sum += got, squares += double{got} * got;
      }
    }
    EXPECT_EQ(different, 0) << name_of(isa);
    EXPECT_NEAR(sum / kCount, 0, 5 * 0.02 / std::sqrt(kCount));
    EXPECT_NEAR(std::sqrt(squares / kCount), 0.02, 1e-4);
  }
}

TEST(NormalValues, DoNotDependOnThePieces) {
  const RandomKey key{3, 0, 1, DrawForm::kInit};
  std::vector<float> whole(3000), pieces(3000);
  normal_values(detect_isa(), key, 0, 3000, 1.0f, whole.data());
  int64_t at = 0;
  for (const int64_t n : {4, 100, 512, 1024, 1360}) {
    normal_values(detect_isa(), key, at, n, 1.0f, pieces.data() + at);
    at += n;
  }
  EXPECT_EQ(at, 3000);
  EXPECT_EQ(whole, pieces);
}

}  // namespace
}  // namespace mantissa
