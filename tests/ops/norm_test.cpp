#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

constexpr float kEps = 1e-5f;

// Both norms in double: kind 0 RMSNorm, 1 LayerNorm.
struct Reference {
  std::vector<double> y, dx, dweight, dbias;
};

Reference reference(bool layer, const std::vector<float>& x, const std::vector<float>& weight,
                    const std::vector<float>& bias, const std::vector<float>& dy, int64_t rows, int64_t n) {
  Reference out{.y = std::vector<double>(x.size()),
                .dx = std::vector<double>(x.size()),
                .dweight = std::vector<double>(weight.size()),
                .dbias = std::vector<double>(weight.size())};
  for (int64_t t = 0; t < rows; ++t) {
    const float *row = x.data() + t * n, *d = dy.data() + t * n;
    double mean = 0, squares = 0, mean_g = 0, mean_gx = 0;
    if (layer)
      for (int64_t i = 0; i < n; ++i) mean += row[i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (row[i] - mean) * (row[i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
    for (int64_t i = 0; i < n; ++i) {
      const double xhat = (row[i] - mean) * rstd;
      out.y[t * n + i] = xhat * weight[i] + (layer ? bias[i] : 0.0f);
      out.dweight[i] += d[i] * xhat;
      out.dbias[i] += d[i];
      if (layer) mean_g += weight[i] * d[i] / static_cast<double>(n);
      mean_gx += weight[i] * d[i] * xhat / static_cast<double>(n);
    }
    for (int64_t i = 0; i < n; ++i)
      out.dx[t * n + i] = rstd * (weight[i] * d[i] - mean_g - (row[i] - mean) * rstd * mean_gx);
  }
  return out;
}

struct Problem {
  bool layer;
  DType dtype;
  int64_t rows, cols;
  Values x, weight, bias, dy, dresidual;
  Values y, mean, rstd, dx, dweight, dbias;

  Problem(bool layer_norm, DType type, int64_t t, int64_t h, DType y_type, DType grad_type)
      : layer(layer_norm),
        dtype(type),
        rows(t),
        cols(h),
        x(random_values(type, {t, h}, 1, 3)),
        weight(random_values(type, {h}, 2)),
        bias(random_values(type, {h}, 3)),
        dy(random_values(type, {t, h}, 4)),
        dresidual(random_values(type, {t, h}, 5)),
        y(y_type, {t, h}),
        mean(DType::kF32, {t}),
        rstd(DType::kF32, {t}),
        dx(type, {t, h}),
        dweight(grad_type, {h}),
        dbias(grad_type, {h}) {}

  void forward(Exec& exec, float* amax = nullptr) {
    Operand out{.high = y.tensor(), .rowwise = {}, .columnwise = {}, .producer_amax = amax};
    if (layer)
      layer_norm_fwd(exec, out, mean, rstd, x, weight, bias, kEps);
    else
      rms_norm_fwd(exec, out, rstd, x, weight, kEps);
  }
  void backward(Exec& exec, bool with_residual) {
    const ConstTensor past = with_residual ? ConstTensor(dresidual) : ConstTensor();
    if (layer)
      layer_norm_bwd(exec, dx, dweight, dbias, dy, x, weight, mean, rstd, past);
    else
      rms_norm_bwd(exec, dx, dweight, dy, x, weight, rstd, past);
  }
};

TEST(Norm, AgreesWithDoubleOnEveryInstructionSet) {
  for (Isa isa : machine_isas())
    for (bool layer : {false, true})
      for (DType dtype : {DType::kF32, DType::kBF16})
        for (auto [t, h] : {std::pair{1, 1}, {1, 100}, {5, 7}, {70, 256}, {1100, 100}, {3, 3000}}) {
          SCOPED_TRACE(testing::Message()
                       << name_of(isa) << " layer " << layer << " " << name_of(dtype) << " T " << t << " H " << h);
          Exec exec(isa);
          Problem p(layer, dtype, t, h, dtype, DType::kF32);
          p.forward(exec);
          p.backward(exec, false);
          const Reference want =
              reference(layer, p.x.floats(), p.weight.floats(), p.bias.floats(), p.dy.floats(), t, h);
          EXPECT_LT(relative_error(p.y.floats(), want.y), bound_of(dtype));
          if (h > 1) {
            EXPECT_LT(relative_error(p.dx.floats(), want.dx), bound_of(dtype));
          }
          // Gradients of weights are sums in FP32 whatever the dtype of x.
          if (h > 1 || !layer) {
            EXPECT_LT(relative_error(p.dweight.floats(), want.dweight), kF32Bound);
          }
          if (layer) {
            EXPECT_LT(relative_error(p.dbias.floats(), want.dbias), kF32Bound);
          }
        }
}

TEST(Norm, GradientsAgreeWithFiniteDifferences) {
  const int64_t t = 3, h = 20;
  for (bool layer : {false, true}) {
    SCOPED_TRACE(layer);
    Exec exec;
    Problem p(layer, DType::kF32, t, h, DType::kF32, DType::kF32);
    p.forward(exec);
    p.backward(exec, false);
    const std::vector<float> dy = p.dy.floats();
    auto loss_of = [&](Values Problem::*which) {
      return [&, which](const std::vector<float>& values) {
        Problem q = p;
        q.*which = Values(DType::kF32, (q.*which).tensor().shape, values);
        q.forward(exec);
        return weighted_sum(dy, q.y.floats());
      };
    };
    EXPECT_LT(relative_error(p.dx.floats(), finite_difference(p.x.floats(), 1e-2f, loss_of(&Problem::x))),
              kFiniteDifferenceBound);
    EXPECT_LT(
        relative_error(p.dweight.floats(), finite_difference(p.weight.floats(), 1e-2f, loss_of(&Problem::weight))),
        kFiniteDifferenceBound);
    if (layer) {
      EXPECT_LT(relative_error(p.dbias.floats(), finite_difference(p.bias.floats(), 1e-2f, loss_of(&Problem::bias))),
                kFiniteDifferenceBound);
    }
  }
}

TEST(Norm, ResidualGradientIsAddedBeforeRounding) {
  Exec exec;
  for (bool layer : {false, true}) {
    Problem plain(layer, DType::kF32, 9, 100, DType::kF32, DType::kF32), past = plain;
    plain.forward(exec), past.forward(exec);
    plain.backward(exec, false), past.backward(exec, true);
    const auto a = plain.dx.floats(), b = past.dx.floats(), r = past.dresidual.floats();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(b[i], a[i] + r[i]) << i;
  }
}

TEST(Norm, WeightGradientsAccumulateAndRoundOnceACall) {
  Exec exec;
  for (bool layer : {false, true}) {
    Problem exact(layer, DType::kBF16, 500, 100, DType::kBF16, DType::kF32);
    Problem rounded(layer, DType::kBF16, 500, 100, DType::kBF16, DType::kBF16);
    const Values start = random_values(DType::kBF16, {100}, 9, 30);
    rounded.dweight = rounded.dbias = start;
    exact.dweight = exact.dbias = Values(DType::kF32, {100}, start.floats());
    for (Problem* p : {&exact, &rounded}) {
      p->forward(exec);
      p->backward(exec, true);
    }
    EXPECT_TRUE(rounded.dweight == Values(DType::kBF16, {100}, exact.dweight.floats()));
    if (layer) {
      EXPECT_TRUE(rounded.dbias == Values(DType::kBF16, {100}, exact.dbias.floats()));
    }
  }
}

TEST(Norm, AddedResidualIsRoundedThenNormalised) {
  Exec exec;
  const int64_t t = 33, h = 100;
  for (bool layer : {false, true})
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      Problem p(layer, dtype, t, h, dtype, DType::kF32);
      Values r = random_values(dtype, {t, h}, 11), stream(dtype, {t, h}), y(dtype, {t, h});
      std::vector<float> sum = p.x.floats();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += r.floats()[i];
      const Values want(dtype, {t, h}, sum);
      Values in_place = p.x;
      for (bool alias : {false, true}) {
        Values& x = alias ? in_place : p.x;
        Values& out = alias ? in_place : stream;
        Operand operand{.high = y.tensor(), .rowwise = {}, .columnwise = {}};
        if (layer)
          add_layer_norm_fwd(exec, operand, p.mean, p.rstd, out, x, r, p.weight, p.bias, kEps);
        else
          add_rms_norm_fwd(exec, operand, p.rstd, out, x, r, p.weight, kEps);
        EXPECT_TRUE(out == want);
        Problem q = p;
        q.x = want;
        q.forward(exec);
        EXPECT_TRUE(q.y == y);
        EXPECT_TRUE(q.rstd == p.rstd);
      }
    }
}

TEST(Norm, ProducerAmaxIsOfTheUnroundedValue) {
  Exec exec;
  for (bool layer : {false, true}) {
    Problem wide(layer, DType::kBF16, 77, 100, DType::kF32, DType::kF32);
    Problem narrow(layer, DType::kBF16, 77, 100, DType::kBF16, DType::kF32);
    float wide_amax = 1e9f, narrow_amax = 1e9f, want = 0;
    wide.forward(exec, &wide_amax);
    narrow.forward(exec, &narrow_amax);
    for (float v : wide.y.floats()) want = std::max(want, std::fabs(v));
    EXPECT_EQ(wide_amax, want);
    EXPECT_EQ(narrow_amax, want);
    EXPECT_TRUE(narrow.y == Values(DType::kBF16, {77, 100}, wide.y.floats()));
  }
}

TEST(Norm, BitsDoNotDependOnThreads) {
  for (Isa isa : machine_isas())
    for (bool layer : {false, true}) {
      auto run = [&](int threads) {
        return with_threads(threads, [&] {
          Exec exec(isa);
          Problem p(layer, DType::kBF16, 1031, 100, DType::kBF16, DType::kF32);
          p.forward(exec);
          p.backward(exec, true);
          return p;
        });
      };
      const Problem one = run(1), two = run(2), three = run(3), again = run(2);
      for (const Problem* p : {&two, &three, &again}) {
        EXPECT_TRUE(one.y == p->y && one.rstd == p->rstd && one.mean == p->mean);
        EXPECT_TRUE(one.dx == p->dx && one.dweight == p->dweight && one.dbias == p->dbias);
      }
    }
}

TEST(Norm, SaysWhichArgumentDoesNotFit) {
  Exec exec;
  Problem p(false, DType::kBF16, 4, 100, DType::kBF16, DType::kF32);
  p.weight = Values(DType::kBF16, {99});
  EXPECT_EQ(error_of([&] { p.forward(exec); }), "rms_norm_fwd: weight is bf16[99], expected bf16[100] (H of x)");
  Problem q(true, DType::kBF16, 4, 100, DType::kBF16, DType::kF32);
  q.dresidual = Values(DType::kF32, {4, 100});
  q.forward(exec);
  EXPECT_EQ(error_of([&] { q.backward(exec, true); }),
            "layer_norm_bwd: dresidual is f32[4,100], expected bf16[4,100] (as x)");
}

}  // namespace
}  // namespace mantissa
