#include "ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

constexpr DType kFloats[] = {DType::kF32, DType::kBF16};

TEST(Elementwise, AddRoundsOnceInEveryMixOfDtypes) {
  const Shape shape{37, 111};
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    for (DType y_type : kFloats)
      for (DType a_type : kFloats)
        for (DType b_type : kFloats) {
          Values a = random_values(a_type, shape, 1), b = random_values(b_type, shape, 2), y(y_type, shape);
          std::vector<float> want = a.floats();
          for (size_t i = 0; i < want.size(); ++i) want[i] += b.floats()[i];
          add(exec, y, a, b);
          EXPECT_TRUE(y == Values(y_type, shape, want));
          if (y_type == a_type) {
            add(exec, a, a, b);  // y is a
            EXPECT_TRUE(a == y);
          }
        }
  }
}

TEST(Elementwise, CastRoundsToNearestEvenAndKeepsSpecialValues) {
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    std::vector<float> x = random_normal(5000, 1);
    const float special[] = {0.0f,
                             -0.0f,
                             INFINITY,
                             -INFINITY,
                             NAN,
                             1e-40f,
                             -1e-45f,
                             3.4028235e38f,
                             1.00390625f,
                             1.01171875f,
                             1.0039064f,
                             0x1.fep127f,
                             std::bit_cast<float>(0x7f800001u)};
    for (size_t i = 0; i < std::size(special); ++i) x[i * 3] = special[i];
    Values wide(DType::kF32, {5000}, x), narrow(DType::kBF16, {5000}), back(DType::kF32, {5000});
    cast(exec, narrow, wide);
    EXPECT_TRUE(narrow == Values(DType::kBF16, {5000}, x));
    cast(exec, back, narrow);
    EXPECT_TRUE(back == Values(DType::kF32, {5000}, narrow.floats()));
    const std::vector<float> y = narrow.floats();
    EXPECT_EQ(y[24], 1.0f);        // 1 + 2^-8 lies half way: to even
    EXPECT_EQ(y[27], 1.015625f);   // 1 + 3 * 2^-8 lies half way: to even
    EXPECT_EQ(y[30], 1.0078125f);  // just above half way
    EXPECT_EQ(y[21], INFINITY);    // above the largest BF16
    EXPECT_TRUE(std::isnan(y[12]) && std::isnan(y[36]));
  }
}

TEST(Elementwise, BiasGradientAddsColumnSums) {
  for (Isa isa : machine_isas())
    for (auto [t, n] : {std::pair{1, 1}, {1, 100}, {1500, 100}, {17, 3000}}) {
      Exec exec(isa);
      Values dy = random_values(DType::kBF16, {t, n}, 1), db = random_values(DType::kBF16, {n}, 2, 40);
      Values exact(DType::kF32, {n}, db.floats());
      std::vector<double> want(static_cast<size_t>(n));
      const std::vector<float> d = dy.floats(), start = db.floats();
      for (int64_t i = 0; i < n; ++i) {
        want[i] = start[i];
        for (int64_t r = 0; r < t; ++r) want[i] += d[r * n + i];
      }
      bias_bwd(exec, exact, dy);
      bias_bwd(exec, db, dy);
      EXPECT_LT(relative_error(exact.floats(), want), kF32Bound);
      EXPECT_TRUE(db == Values(DType::kBF16, {n}, exact.floats()));
    }
}

TEST(Elementwise, SumOfSquaresIsExactToDouble) {
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    for (DType dtype : kFloats)
      for (int64_t n : {1, 100, 16384, 50001}) {
        Values x = random_values(dtype, {n}, 1);
        long double want = 0;
        for (float v : x.floats()) want += static_cast<long double>(v) * v;
        EXPECT_NEAR(sum_of_squares(exec, x) / static_cast<double>(want), 1, 1e-13);
      }
    // Squares beyond FP32's range.
    Values big(DType::kF32, {3}, {3e38f, -3e38f, 1e-40f});
    EXPECT_NEAR(sum_of_squares(exec, big) / (2 * double{3e38f} * double{3e38f}), 1, 1e-15);
  }
}

TEST(Elementwise, FindsTheFirstNonFiniteElement) {
  const std::vector<float> normal = random_normal(50000, 1);
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    for (DType dtype : kFloats)
      for (float bad : {NAN, INFINITY, -INFINITY})
        for (int64_t at : {0, 17, 16384, 49999}) {
          std::vector<float> x = normal;
          Values clean(dtype, {50000}, x);
          EXPECT_EQ(first_nonfinite(exec, clean), -1);
          EXPECT_TRUE(std::isfinite(sum_of_squares(exec, clean)));
          x[at] = bad;
          x[49999] = NAN;
          Values dirty(dtype, {50000}, x);
          EXPECT_EQ(first_nonfinite(exec, dirty), at);
          EXPECT_FALSE(std::isfinite(sum_of_squares(exec, dirty)));
        }
  }
}

TEST(Elementwise, BitsDoNotDependOnThreads) {
  auto run = [](int threads) {
    return with_threads(threads, [] {
      Exec exec;
      Values dy = random_values(DType::kBF16, {1031, 100}, 1), db(DType::kF32, {100});
      bias_bwd(exec, db, dy);
      return std::pair{db, sum_of_squares(exec, dy)};
    });
  };
  const auto one = run(1);
  for (int threads : {2, 3}) {
    const auto other = run(threads);
    EXPECT_TRUE(one.first == other.first);
    EXPECT_EQ(one.second, other.second);
  }
}

TEST(Elementwise, SaysWhichArgumentDoesNotFit) {
  Exec exec;
  Values y(DType::kF32, {4}), x(DType::kF32, {5});
  EXPECT_EQ(error_of([&] { cast(exec, y, x); }), "cast: x is f32[5], expected [4] (shape of y)");
  EXPECT_EQ(error_of([&] { add(exec, y, y, {}); }), "add: b is missing, expected [4] (shape of y)");
}

}  // namespace
}  // namespace mantissa
