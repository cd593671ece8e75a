#include "ops/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace mantissa {
namespace {

// c = a bᵀ in double from F32 data.
TEST(Gemm, PlainProductAgreesWithDouble) {
  Exec exec;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const int64_t m = 33, n = 17, k = 100;
  std::vector<float> a(m * k), b(n * k), c(m * n, 1.0f), bias(n);
  for (auto* v : {&a, &b, &bias})
    for (float& x : *v) x = normal(random);
  gemm(exec, {.a = GemmSide::plain({a.data(), DType::kF32, {m, k}}),
              .b = GemmSide::plain({b.data(), DType::kF32, {n, k}}),
              .c = {c.data(), DType::kF32, {m, n}},
              .bias = {bias.data(), DType::kF32, {n}},
              .beta = 1});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double want = 1 + bias[j];
      for (int64_t p = 0; p < k; ++p) want += double{a[i * k + p]} * b[j * k + p];
      ASSERT_NEAR(c[i * n + j], want, 1e-4);
    }
}

}  // namespace
}  // namespace mantissa
