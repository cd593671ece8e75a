#include "ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/cpu/vec_math.h"
#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// |got - want| in units of the last place of want in FP32.
double ulps(float got, double want) {
  if (static_cast<float>(want) == got) return 0;
  const float magnitude = std::max(std::fabs(static_cast<float>(want)), 1.17549435e-38f);
  return std::fabs(static_cast<double>(got) - want) / (std::nextafterf(magnitude, INFINITY) - magnitude);
}

TEST(VecMath, ExpIsWithinAnUlpAndAHalf) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 997)
    for (float sign : {1.0f, -1.0f}) {
      const float x = sign * std::bit_cast<float>(bits);
      const double want = std::exp(static_cast<double>(x));
      const float got = vec_exp(x);
      if (want > 3.4028235e38) {
        ASSERT_EQ(got, INFINITY) << x;
      } else if (want < 0x1p-126) {
        ASSERT_EQ(got, 0) << x;
      } else {
        worst = std::max(worst, ulps(got, want));
      }
    }
  for (float x = -87.3365f; x < 88.7228f; x += 1e-4f)
    worst = std::max(worst, ulps(vec_exp(x), std::exp(static_cast<double>(x))));
  EXPECT_LT(worst, 1.5);
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_EQ(vec_exp(0), 1);
  EXPECT_EQ(vec_exp(-INFINITY), 0);
  EXPECT_EQ(vec_exp(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(vec_exp(NAN)));
}

TEST(VecMath, SigmoidIsWithinThreeUlps) {
  double worst = 0;
  for (float x = -87; x < 87; x += 1e-3f) worst = std::max(worst, ulps(vec_sigmoid(x), sigmoid(x)));
  EXPECT_LT(worst, 3);
  EXPECT_EQ(vec_sigmoid(-INFINITY), 0);
  EXPECT_EQ(vec_sigmoid(INFINITY), 1);
}

struct Problem {
  bool swiglu;
  int64_t rows, cols;
  Values x, dy, y, dx;

  Problem(bool gated, DType dtype, int64_t t, int64_t f, DType out_type)
      : swiglu(gated),
        rows(t),
        cols(f),
        x(random_values(dtype, {t, gated ? 2 * f : f}, 1, 2)),
        dy(random_values(dtype, {t, f}, 2)),
        y(out_type, {t, f}),
        dx(out_type, {t, gated ? 2 * f : f}) {}

  void forward(Exec& exec, float* amax = nullptr) {
    Operand out{.high = y.tensor(), .rowwise = {}, .columnwise = {}, .producer_amax = amax};
    swiglu ? swiglu_fwd(exec, out, x) : gelu_fwd(exec, out, x);
  }
  void backward(Exec& exec, float* amax = nullptr) {
    Operand out{.high = dx.tensor(), .rowwise = {}, .columnwise = {}, .producer_amax = amax};
    swiglu ? swiglu_bwd(exec, out, dy, x) : gelu_bwd(exec, out, dy, x);
  }
  std::vector<double> want() const {
    const std::vector<float> v = x.floats();
    std::vector<double> out;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t i = 0; i < cols; ++i)
        out.push_back(swiglu ? silu(v[t * 2 * cols + i]) * v[t * 2 * cols + cols + i] : gelu(v[t * cols + i]));
    return out;
  }
};

TEST(Activation, AgreesWithDoubleOnEveryInstructionSet) {
  for (Isa isa : machine_isas())
    for (bool swiglu : {false, true})
      for (DType dtype : {DType::kF32, DType::kBF16})
        for (auto [t, f] : {std::pair{1, 1}, {1, 100}, {37, 768}}) {
          SCOPED_TRACE(testing::Message() << name_of(isa) << " swiglu " << swiglu << " T " << t << " F " << f);
          Exec exec(isa);
          Problem p(swiglu, dtype, t, f, dtype);
          p.forward(exec);
          EXPECT_LT(relative_error(p.y.floats(), p.want()), bound_of(dtype));
        }
}

TEST(Activation, GeluKeepsItsNegativeTail) {
  Exec exec;
  Problem p(false, DType::kF32, 1, 5, DType::kF32);
  p.x = Values(DType::kF32, {1, 5}, {-4.0f, -5.0f, -1e4f, 1e4f, 0.0f});
  p.forward(exec);
  const std::vector<float> y = p.y.floats();
  for (int i : {0, 1}) {
    const double x = p.x.floats()[i], u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(y[i] / (x * sigmoid(2 * u)), 1, 1e-5);
  }
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 1e4f);
  EXPECT_EQ(y[4], 0);
}

TEST(Activation, GradientsAgreeWithFiniteDifferences) {
  Exec exec;
  for (bool swiglu : {false, true}) {
    Problem p(swiglu, DType::kF32, 5, 19, DType::kF32);
    p.backward(exec);
    const std::vector<float> dy = p.dy.floats();
    const auto slope = finite_difference(p.x.floats(), 1e-2f, [&](const std::vector<float>& values) {
      Problem q = p;
      q.x = Values(DType::kF32, q.x.tensor().shape, values);
      q.forward(exec);
      return weighted_sum(dy, q.y.floats());
    });
    EXPECT_LT(relative_error(p.dx.floats(), slope), kFiniteDifferenceBound);
  }
}

TEST(Activation, Bf16AgreesWithF32OnTheSameInput) {
  for (Isa isa : machine_isas())
    for (bool swiglu : {false, true}) {
      Exec exec(isa);
      Problem narrow(swiglu, DType::kBF16, 37, 100, DType::kBF16), wide(swiglu, DType::kF32, 37, 100, DType::kF32);
      wide.x = Values(DType::kF32, wide.x.tensor().shape, narrow.x.floats());
      wide.dy = Values(DType::kF32, wide.dy.tensor().shape, narrow.dy.floats());
      for (Problem* p : {&narrow, &wide}) p->forward(exec), p->backward(exec);
      // The same FP32 arithmetic, rounded once.
      EXPECT_TRUE(narrow.y == Values(DType::kBF16, {37, 100}, wide.y.floats()));
      EXPECT_TRUE(narrow.dx == Values(DType::kBF16, narrow.dx.tensor().shape, wide.dx.floats()));
    }
}

TEST(Activation, ProducerAmaxIsOfTheUnroundedValue) {
  Exec exec;
  for (bool swiglu : {false, true}) {
    Problem wide(swiglu, DType::kBF16, 77, 100, DType::kF32), narrow(swiglu, DType::kBF16, 77, 100, DType::kBF16);
    auto largest = [](const Values& v) {
      float amax = 0;
      for (float x : v.floats()) amax = std::max(amax, std::fabs(x));
      return amax;
    };
    float forward[2] = {1e9f, 1e9f}, backward[2] = {1e9f, 1e9f};
    wide.forward(exec, &forward[0]), narrow.forward(exec, &forward[1]);
    wide.backward(exec, &backward[0]), narrow.backward(exec, &backward[1]);
    EXPECT_EQ(forward[0], largest(wide.y));
    EXPECT_EQ(forward[1], largest(wide.y));
    EXPECT_EQ(backward[0], largest(wide.dx));
    EXPECT_EQ(backward[1], largest(wide.dx));
  }
}

TEST(Activation, BitsDoNotDependOnThreadsOrInstructionSet) {
  for (bool swiglu : {false, true}) {
    auto run = [&](Isa isa, int threads) {
      return with_threads(threads, [&] {
        Exec exec(isa);
        Problem p(swiglu, DType::kBF16, 131, 100, DType::kF32);
        p.forward(exec), p.backward(exec);
        return p;
      });
    };
    const Problem one = run(Isa::kBase, 1);
    for (Isa isa : machine_isas())
      for (int threads : {1, 2, 3}) {
        const Problem other = run(isa, threads);
        EXPECT_TRUE(one.y == other.y && one.dx == other.dx) << name_of(isa) << " " << threads;
      }
  }
}

TEST(Activation, SaysWhichArgumentDoesNotFit) {
  Exec exec;
  Problem p(true, DType::kBF16, 4, 10, DType::kBF16);
  p.y = Values(DType::kBF16, {4, 20});
  EXPECT_EQ(error_of([&] { p.forward(exec); }), "swiglu_fwd: y is bf16[4,20], expected [4,10] (T of x, F)");
}

}  // namespace
}  // namespace mantissa
