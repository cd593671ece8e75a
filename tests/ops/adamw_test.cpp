#include "ops/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "numerics/moment8.h"
#include "ops/elementwise.h"
#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

constexpr AdamwStep kStep{
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 0.5f, .t = 3};

// adamw_update() on one parameter, without clipping: how many elements did not move.
int64_t update_one(Exec& exec, Tensor param, Tensor copy, ConstTensor grad, Tensor m, Tensor v, const AdamwStep& step,
                   bool stochastic, uint32_t id) {
  AdamwOutcome outcome;
  const AdamwParam p{.param = param, .copy = copy, .grad = grad, .m = m, .v = v, .id = id};
  adamw_update(exec, &outcome, std::vector{p}, step, 0, stochastic);
  return outcome.unmoved;
}

struct Problem {
  Values param, copy, grad, m, v;

  Problem(DType param_type, DType grad_type, DType state_type, int64_t n)
      : param(random_values(param_type, {n}, 1)),
        copy(DType::kBF16, {n}),
        grad(random_values(grad_type, {n}, 2)),
        m(random_values(state_type, {n}, 3, 0.1f)),
        v(state_type, {n}) {
    std::vector<float> squares = random_normal(n, 4);
    for (float& x : squares) x *= x;
    v = Values(state_type, {n}, squares);
  }
  int64_t step(Exec& exec, const AdamwStep& step, bool stochastic, bool with_copy = true, uint32_t id = 7) {
    return update_one(exec, param, with_copy ? copy.tensor() : Tensor(), grad, m, v, step, stochastic, id);
  }
};

// One step in double, in PyTorch's order (torch/optim/adamw.py, _single_tensor_adamw).
std::vector<double> reference(const Problem& p, const AdamwStep& s, std::vector<double>* m_out = nullptr,
                              std::vector<double>* v_out = nullptr) {
  std::vector<double> out;
  const auto param = p.param.floats(), grad = p.grad.floats(), m = p.m.floats(), v = p.v.floats();
  const double beta1 = s.beta1, beta2 = s.beta2, t = static_cast<double>(s.t);
  for (size_t i = 0; i < param.size(); ++i) {
    const double g = double{grad[i]} * s.grad_scale;
    double x = param[i] * (1 - double{s.lr} * s.weight_decay);
    const double mi = m[i] + (1 - beta1) * (g - m[i]);
    const double vi = beta2 * v[i] + (1 - beta2) * g * g;
    const double denominator = std::sqrt(vi) / std::sqrt(1 - std::pow(beta2, t)) + s.eps;
    out.push_back(x - s.lr / (1 - std::pow(beta1, t)) * mi / denominator);
    if (m_out) m_out->push_back(mi);
    if (v_out) v_out->push_back(vi);
  }
  return out;
}

TEST(Adamw, AgreesWithDoubleOnEveryInstructionSet) {
  for (Isa isa : machine_isas())
    for (DType param : {DType::kF32, DType::kBF16})
      for (DType grad : {DType::kF32, DType::kBF16})
        for (DType state : {DType::kF32, DType::kBF16}) {
          SCOPED_TRACE(testing::Message() << name_of(isa) << " " << name_of(param) << name_of(grad) << name_of(state));
          Exec exec(isa);
          Problem p(param, grad, state, 5003);
          std::vector<double> m, v;
          const std::vector<double> want = reference(p, kStep, &m, &v);
          p.step(exec, kStep, false);
          EXPECT_LT(relative_error(p.param.floats(), want), param == DType::kF32 ? 1e-6 : kBf16Bound);
          EXPECT_LT(relative_error(p.m.floats(), m), state == DType::kF32 ? 1e-6 : kBf16Bound);
          EXPECT_LT(relative_error(p.v.floats(), v), state == DType::kF32 ? 1e-6 : kBf16Bound);
          EXPECT_TRUE(p.copy == Values(DType::kBF16, {5003}, p.param.floats()));
        }
}

// The move of each parameter, not the parameter: what an error of the update would show in.
TEST(Adamw, UpdateItselfAgreesWithDouble) {
  Exec exec;
  for (int64_t t : {1, 2, 1000, 1000000}) {
    Problem p(DType::kF32, DType::kF32, DType::kF32, 2000);
    p.param = Values(DType::kF32, {2000});
    AdamwStep step = kStep;
    step.t = t;
    const std::vector<double> want = reference(p, step);
    p.step(exec, step, false);
    EXPECT_LT(relative_error(p.param.floats(), want), 1e-6) << t;
  }
}

TEST(Adamw, ManyStepsFollowDouble) {
  Exec exec;
  Problem p(DType::kF32, DType::kF32, DType::kF32, 500);
  p.m = p.v = Values(DType::kF32, {500});
  std::vector<double> x, m(500), v(500);
  for (float f : p.param.floats()) x.push_back(f);
  for (int64_t t = 1; t <= 100; ++t) {
    p.grad = random_values(DType::kF32, {500}, static_cast<uint32_t>(t));
    const auto g = p.grad.floats();
    for (size_t i = 0; i < 500; ++i) {
      x[i] *= 1 - 1e-2 * 0.1;
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.95 * v[i] + 0.05 * g[i] * g[i];
      x[i] -= 1e-2 / (1 - std::pow(0.9, t)) * m[i] / (std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.95, t)) + 1e-8);
    }
    AdamwStep step = kStep;
    step.grad_scale = 1;
    step.t = t;
    p.step(exec, step, false);
  }
  EXPECT_LT(relative_error(p.param.floats(), x), kF32Bound);
}

TEST(Adamw, ZeroGradientOnlyDecays) {
  Exec exec;
  Problem p(DType::kF32, DType::kF32, DType::kF32, 100);
  p.grad = p.m = p.v = Values(DType::kF32, {100});
  std::vector<float> want = p.param.floats();
  const auto decay = static_cast<float>(double{kStep.lr} * kStep.weight_decay);
  for (float& x : want) x -= decay * x;
  EXPECT_EQ(p.step(exec, kStep, false, false), 0);
  EXPECT_TRUE(p.param == Values(DType::kF32, {100}, want));
}

TEST(Adamw, CountsBf16ElementsThatDoNotMove) {
  for (Isa isa : machine_isas()) {
    Exec exec(isa);
    Problem p(DType::kBF16, DType::kF32, DType::kF32, 3001);
    const Values before = p.param;
    AdamwStep step = kStep;
    step.lr = 1e-3f;
    const int64_t still = p.step(exec, step, false);
    const std::vector<float> old = before.floats(), moved = p.param.floats();
    int64_t want = 0;
    for (size_t i = 0; i < old.size(); ++i) want += moved[i] == old[i];
    EXPECT_EQ(still, want);
    EXPECT_GT(still, 1000);
    EXPECT_LT(still, 3001);
    // A frozen tensor has no updates and counts none.
    step.lr = 0;
    EXPECT_EQ(p.step(exec, step, false), 0);
  }
}

TEST(Adamw, StochasticRoundingIsUnbiasedAndStaysNextToTheValue) {
  Exec exec;
  exec.state.seed = 11;
  const int64_t n = 40000;
  AdamwStep step = kStep;
  step.lr = 5e-3f;  // moves below half an ulp of BF16: to nearest nothing moves
  step.weight_decay = 0;
  auto problem = [&] {
    Problem p(DType::kBF16, DType::kF32, DType::kF32, n);
    p.param = Values(DType::kBF16, {n}, std::vector<float>(n, 1.5f));
    p.v = Values(DType::kF32, {n}, std::vector<float>(n, 1.0f));
    return p;
  };
  Problem nearest = problem(), random = problem();
  const std::vector<double> want = reference(nearest, step);
  EXPECT_EQ(nearest.step(exec, step, false), n);
  const int64_t still = random.step(exec, step, true);
  EXPECT_LT(still, n);
  EXPECT_GT(still, n * 3 / 4);
  constexpr double ulp = 0x1p-7;
  double error = 0, variance = 0;
  const std::vector<float> got = random.param.floats();
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_LE(std::fabs(got[i] - want[i]), ulp);
    const double distance = std::fabs(want[i] - 1.5) / ulp;  // probability of a move
    error += got[i] - want[i];
    variance += ulp * ulp * distance * (1 - distance);
  }
  EXPECT_LT(std::fabs(error), 4 * std::sqrt(variance));
  EXPECT_TRUE(random.m == nearest.m && random.v == nearest.v);
}

// Draws are named by (seed, step, tensor, element): layout, threads and instruction set change nothing.
TEST(Adamw, StochasticBitsAreAFunctionOfTheElement) {
  const int64_t n = 9001;
  auto run = [&](Isa isa, int threads, uint64_t seed, uint32_t exec_step, uint32_t id) {
    return with_threads(threads, [&] {
      Exec exec(isa);
      exec.state.seed = seed, exec.state.step = exec_step;
      Problem p(DType::kBF16, DType::kBF16, DType::kBF16, n);
      p.step(exec, kStep, true, false, id);
      return p.param;
    });
  };
  const Values one = run(Isa::kBase, 1, 1, 2, 3);
  for (Isa isa : machine_isas())
    for (int threads : {1, 2, 3}) EXPECT_TRUE(one == run(isa, threads, 1, 2, 3)) << name_of(isa) << " " << threads;
  EXPECT_FALSE(one == run(Isa::kBase, 1, 2, 2, 3));
  EXPECT_FALSE(one == run(Isa::kBase, 1, 1, 3, 3));
  EXPECT_FALSE(one == run(Isa::kBase, 1, 1, 2, 4));
  // Element i takes half-word i % 8 of block i / 8.
  Exec exec;
  exec.state.seed = 1, exec.state.step = 2;
  Problem exact(DType::kBF16, DType::kBF16, DType::kBF16, n);
  Problem wide(DType::kF32, DType::kBF16, DType::kBF16, n);
  wide.param = Values(DType::kF32, {n}, exact.param.floats());
  wide.step(exec, kStep, false, false);
  const std::vector<float> x = wide.param.floats(), got = one.floats();
  for (int64_t i = 0; i < n; ++i) {
    const Random4 bits = draw(exec.random_key(3, DrawForm::kUpdate), static_cast<uint64_t>(i / 8));
    const uint32_t half = bits.x[i % 8 / 2] >> (i % 2 * 16) & 0xffffu;
    ASSERT_EQ(got[i], std::bit_cast<float>((std::bit_cast<uint32_t>(x[i]) + half) & 0xffff0000u)) << i;
  }
}

TEST(Adamw, BitsDoNotDependOnThreads) {
  auto run = [](int threads) {
    return with_threads(threads, [] {
      Exec exec;
      Problem p(DType::kF32, DType::kF32, DType::kF32, 50001);
      p.step(exec, kStep, false);
      return p;
    });
  };
  const Problem one = run(1), two = run(2), again = run(2);
  for (const Problem* p : {&two, &again})
    EXPECT_TRUE(one.param == p->param && one.copy == p->copy && one.m == p->m && one.v == p->v);
}

// Several parameters, each with its own decay and random stream.
struct Update {
  std::vector<Problem> problems;
  std::vector<AdamwParam> params;

  explicit Update(DType param) {
    for (const int64_t n : {5, 1000, 20001}) problems.emplace_back(param, DType::kF32, DType::kF32, n);
    for (Problem& p : problems) {
      const auto id = static_cast<uint32_t>(params.size());
      params.push_back({.param = p.param,
                        .copy = p.copy,
                        .grad = p.grad,
                        .m = p.m,
                        .v = p.v,
                        .m_scale = {},
                        .v_scale = {},
                        .decays = id != 1,
                        .id = id});
    }
  }
};

TEST(AdamwUpdate, IsNormClippingAndAdamwOfEach) {
  for (const bool stochastic : {false, true})
    for (const double max_norm : {0.0, 0.5, 1e9}) {
      Exec exec;
      exec.state.seed = 3, exec.state.step = 4;
      const DType dtype = stochastic ? DType::kBF16 : DType::kF32;
      Update together(dtype), apart(dtype);
      AdamwOutcome outcome{.grad_norm = -1, .unmoved = -1};
      adamw_update(exec, &outcome, together.params, kStep, max_norm, stochastic);
      double sum = 0;
      for (Problem& p : apart.problems) sum += sum_of_squares(exec, p.grad);
      EXPECT_EQ(outcome.grad_norm, std::sqrt(sum));
      AdamwStep step = kStep;
      if (max_norm > 0) step.grad_scale *= static_cast<float>(std::min(1.0, max_norm / (std::sqrt(sum) + 1e-6)));
      EXPECT_EQ(step.grad_scale == kStep.grad_scale, max_norm != 0.5);
      int64_t unmoved = 0;
      for (uint32_t i = 0; i < 3; ++i) {
        step.weight_decay = i == 1 ? 0.0f : kStep.weight_decay;
        unmoved += apart.problems[i].step(exec, step, stochastic, true, i);
        EXPECT_TRUE(together.problems[i].param == apart.problems[i].param);
        EXPECT_TRUE(together.problems[i].copy == apart.problems[i].copy);
        EXPECT_TRUE(together.problems[i].m == apart.problems[i].m);
        EXPECT_TRUE(together.problems[i].v == apart.problems[i].v);
      }
      EXPECT_EQ(outcome.unmoved, unmoved);
    }
}

TEST(AdamwUpdate, MovesNothingWhenTheNormIsNotFinite) {
  Exec exec;
  Update update(DType::kF32);
  std::vector<float> grad = update.problems[1].grad.floats();
  grad[999] = INFINITY;
  update.problems[1].grad = Values(DType::kF32, {1000}, grad);
  update.params[1].grad = update.problems[1].grad;
  const std::vector<float> before = update.problems[0].param.floats(), m = update.problems[2].m.floats();
  AdamwOutcome outcome;
  adamw_update(exec, &outcome, update.params, kStep, 1, false);
  EXPECT_TRUE(std::isinf(outcome.grad_norm));
  EXPECT_EQ(outcome.unmoved, 0);
  EXPECT_EQ(update.problems[0].param.floats(), before);
  EXPECT_EQ(update.problems[2].m.floats(), m);
}

// 8-bit moments are FP32 arithmetic between a decoding and an encoding of each block.
TEST(AdamwUpdate, EightBitMomentsOnEveryInstructionSet) {
  for (Isa isa : machine_isas())
    for (const int64_t n : {1, 127, 128, 1300, 5003}) {
      SCOPED_TRACE(testing::Message() << name_of(isa) << " " << n);
      Exec exec(isa);
      const int64_t blocks = (n + kMomentBlock - 1) / kMomentBlock;
      Values param = random_values(DType::kF32, {n}, 1), m_scale(DType::kF32, {blocks}), v_scale(DType::kF32, {blocks});
      std::vector<uint8_t> m_codes(static_cast<size_t>(n)), v_codes(m_codes);
      for (int64_t t = 1; t <= 3; ++t) {
        Values grad = random_values(DType::kF32, {n}, static_cast<uint32_t>(t), t == 2 ? 0.0f : 1.0f);
        std::vector<float> m(m_codes.size()), v(m);
        for (size_t i = 0; i < m.size(); ++i) {
          m[i] = moment8::decode_m(m_codes[i], m_scale.floats()[i / kMomentBlock]);
          v[i] = moment8::decode_v(v_codes[i], v_scale.floats()[i / kMomentBlock]);
        }
        Values wide_param = param, wide_m(DType::kF32, {n}, m), wide_v(DType::kF32, {n}, v);
        AdamwStep step = kStep;
        step.t = t;
        update_one(exec, wide_param, Tensor(), grad, wide_m, wide_v, step, false, 0);
        AdamwOutcome outcome;
        const AdamwParam p{.param = param,
                           .copy = {},
                           .grad = grad,
                           .m = {m_codes.data(), DType::kU8, {n}},
                           .v = {v_codes.data(), DType::kU8, {n}},
                           .m_scale = m_scale,
                           .v_scale = v_scale};
        adamw_update(exec, &outcome, std::vector{p}, step, 0, false);
        EXPECT_TRUE(param == wide_param);
        m = wide_m.floats(), v = wide_v.floats();
        for (int64_t b = 0; b < blocks; ++b) {
          const auto begin = static_cast<size_t>(b * kMomentBlock), end = std::min(m.size(), begin + kMomentBlock);
          float m_most = 0, root_most = 0;
          for (size_t i = begin; i < end; ++i) {
            m_most = std::max(m_most, std::fabs(m[i]));
            root_most = std::max(root_most, std::sqrt(v[i]));
          }
          const float m_unit = moment8::unit_of<127>(m_most), v_unit = moment8::unit_of<255>(root_most);
          ASSERT_EQ(m_scale.floats()[static_cast<size_t>(b)], m_unit);
          ASSERT_EQ(v_scale.floats()[static_cast<size_t>(b)], v_unit);
          for (size_t i = begin; i < end; ++i) {
            ASSERT_EQ(m_codes[i], moment8::encode_m(m[i], moment8::inverse_of(m_unit)));
            ASSERT_EQ(v_codes[i], moment8::encode_root(std::sqrt(v[i]), moment8::inverse_of(v_unit)));
          }
        }
      }
    }
}

TEST(Adamw, SaysWhichArgumentDoesNotFit) {
  Exec exec;
  Problem p(DType::kF32, DType::kF32, DType::kF32, 10);
  EXPECT_EQ(error_of([&] { p.step(exec, kStep, true); }),
            "adamw_update: param is f32[10], expected bf16 for stochastic rounding");
  p.v = Values(DType::kBF16, {10});
  EXPECT_EQ(error_of([&] { p.step(exec, kStep, false); }), "adamw_update: v is bf16[10], expected f32[10] (as m)");
}

}  // namespace
}  // namespace mantissa
