#include "ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

struct Reference {
  double loss = 0, z = 0;
  std::vector<double> gradient;
};

Reference reference(const std::vector<float>& logits, const std::vector<int32_t>& labels, int64_t vocab, double scale,
                    double z_weight) {
  Reference out;
  out.gradient.resize(logits.size());
  for (size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] == -100) continue;
    const float* x = logits.data() + r * vocab;
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < vocab; ++i) largest = std::max(largest, static_cast<double>(x[i]));
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - largest);
    const double lse = largest + std::log(sum);
    out.loss += lse - x[labels[r]];
    out.z += lse * lse;
    for (int64_t i = 0; i < vocab; ++i)
      out.gradient[r * vocab + i] = scale * (std::exp(x[i] - lse) * (1 + 2 * z_weight * lse) - (i == labels[r]));
  }
  return out;
}

struct Problem {
  int64_t rows, vocab;
  Values logits;
  std::vector<int32_t> labels;

  Problem(DType dtype, int64_t r, int64_t v, float scale = 3)
      : rows(r), vocab(v), logits(random_values(dtype, {r, v}, 1, scale)) {
    std::mt19937 generator(2);
    for (int64_t i = 0; i < r; ++i)
      labels.push_back(i % 5 == 3 ? -100 : static_cast<int32_t>(generator() % static_cast<uint32_t>(v)));
  }
  LossSums run(Exec& exec, float grad_scale, float z_weight) {
    LossSums sums;
    const StepState state{.grad_scale = grad_scale, .z_weight = z_weight};
    cross_entropy(exec, &sums, logits, vocab, {labels.data(), DType::kI32, {rows}}, grad_scale != 0 ? &state : nullptr);
    return sums;
  }
};

TEST(CrossEntropy, AgreesWithDoubleOnEveryInstructionSet) {
  for (Isa isa : machine_isas())
    for (DType dtype : {DType::kF32, DType::kBF16})
      for (auto [rows, vocab] : {std::pair{1, 1}, {1, 2}, {7, 100}, {64, 256}, {9, 2049}, {3, 50257}})
        for (float z_weight : {0.0f, 0.01f}) {
          SCOPED_TRACE(testing::Message() << name_of(isa) << " " << name_of(dtype) << " R " << rows << " V " << vocab);
          Exec exec(isa);
          Problem p(dtype, rows, vocab);
          const Reference want = reference(p.logits.floats(), p.labels, vocab, 0.125, z_weight);
          const LossSums sums = p.run(exec, 0.125f, z_weight);
          EXPECT_NEAR(sums.loss, want.loss, 1e-6 * (want.loss + 1));
          EXPECT_NEAR(sums.z, want.z, 1e-6 * (want.z + 1));
          EXPECT_EQ(sums.valid, rows - (rows + 1) / 5);
          if (vocab > 1) {
            EXPECT_LT(relative_error(p.logits.floats(), want.gradient), bound_of(dtype));
          }
        }
}

TEST(CrossEntropy, GradientAgreesWithFiniteDifferences) {
  Exec exec;
  const float scale = 0.5f, z_weight = 0.1f;
  Problem p(DType::kF32, 6, 11, 1);
  const std::vector<double> slope = finite_difference(p.logits.floats(), 1e-2f, [&](const std::vector<float>& x) {
    Problem q = p;
    q.logits = Values(DType::kF32, {6, 11}, x);
    const LossSums sums = q.run(exec, 0, z_weight);
    EXPECT_EQ(q.logits.floats(), x);  // without a gradient the logits stay
    return scale * (sums.loss + z_weight * sums.z);
  });
  p.run(exec, scale, z_weight);
  EXPECT_LT(relative_error(p.logits.floats(), slope), kFiniteDifferenceBound);
}

TEST(CrossEntropy, IgnoredRowsCountNothingAndGetZeros) {
  Exec exec;
  Problem p(DType::kBF16, 4, 100);
  p.labels = {-100, -100, -100, -100};
  Problem q = p;
  q.logits = Values(DType::kBF16, {4, 100}, std::vector<float>(400, NAN));  // not even read
  for (Problem* problem : {&p, &q}) {
    const LossSums sums = problem->run(exec, 1, 0.1f);
    EXPECT_EQ(sums.loss, 0);
    EXPECT_EQ(sums.z, 0);
    EXPECT_EQ(sums.valid, 0);
    EXPECT_EQ(problem->logits.floats(), std::vector<float>(400, 0.0f));
  }
}

TEST(CrossEntropy, SumsAccumulateOverCalls) {
  Exec exec;
  Problem p(DType::kF32, 10, 30);
  LossSums once = p.run(exec, 0, 0), twice = once;
  cross_entropy(exec, &twice, p.logits, p.vocab, {p.labels.data(), DType::kI32, {10}}, nullptr);
  EXPECT_EQ(twice.loss, 2 * once.loss);
  EXPECT_EQ(twice.z, 2 * once.z);
  EXPECT_EQ(twice.valid, 16);
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  Exec exec;
  Problem p(DType::kF32, 1, 3);
  p.labels = {1};
  p.logits = Values(DType::kF32, {1, 3}, {1e4f, -1e4f, -INFINITY});
  const LossSums sums = p.run(exec, 1, 0);
  EXPECT_EQ(sums.loss, 2e4);
  EXPECT_EQ(p.logits.floats(), (std::vector<float>{1, -1, 0}));
}

TEST(CrossEntropy, NanReachesTheLoss) {
  Exec exec;
  for (int64_t at : {0, 70, 99}) {
    Problem p(DType::kBF16, 1, 100);
    std::vector<float> x = p.logits.floats();
    x[static_cast<size_t>(at)] = NAN;
    p.logits = Values(DType::kBF16, {1, 100}, x);
    EXPECT_TRUE(std::isnan(p.run(exec, 1, 0).loss));
  }
}

TEST(CrossEntropy, BitsDoNotDependOnThreadsOrScratch) {
  auto run = [&](int threads, int64_t scratch) {
    return with_threads(threads, [&] {
      Exec exec(detect_isa(), scratch);
      Problem p(DType::kBF16, 1000, 100);
      const LossSums sums = p.run(exec, 0.01f, 1e-4f);
      return std::pair{sums, p.logits};
    });
  };
  const auto one = run(1, Exec::kSharedScratch);
  for (auto [threads, scratch] : {std::pair{2, Exec::kSharedScratch}, {3, Exec::kSharedScratch}, {2, int64_t{4096}}}) {
    const auto other = run(threads, scratch);
    EXPECT_EQ(one.first.loss, other.first.loss);
    EXPECT_EQ(one.first.z, other.first.z);
    EXPECT_TRUE(one.second == other.second);
  }
}

// Columns behind the vocabulary take no part, whatever they hold, and get zeros.
TEST(CrossEntropy, PaddedColumnsTakeNoPart) {
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (auto [vocab, cols] : {std::pair<int64_t, int64_t>{5, 8}, {100, 128}, {2049, 2176}}) {
      const int64_t rows = 9;
      Problem tight(dtype, rows, vocab);
      std::vector<float> x(static_cast<size_t>(rows * cols), NAN);
      const std::vector<float> values = tight.logits.floats();
      for (int64_t i = 0; i < rows * vocab; ++i)
        x[static_cast<size_t>(i / vocab * cols + i % vocab)] = values[static_cast<size_t>(i)];
      Values wide(dtype, {rows, cols}, x);
      Exec exec;
      const StepState state{.grad_scale = 0.5f, .z_weight = 0.01f};
      LossSums sums;
      cross_entropy(exec, &sums, wide, vocab, {tight.labels.data(), DType::kI32, {rows}}, &state);
      const LossSums want = tight.run(exec, state.grad_scale, state.z_weight);
      EXPECT_EQ(sums.loss, want.loss);
      EXPECT_EQ(sums.z, want.z);
      EXPECT_EQ(sums.valid, want.valid);
      const std::vector<float> got = wide.floats(), gradient = tight.logits.floats();
      for (int64_t i = 0; i < rows * cols; ++i)
        ASSERT_EQ(got[static_cast<size_t>(i)],
                  i % cols < vocab ? gradient[static_cast<size_t>(i / cols * vocab + i % cols)] : 0.0f);
    }
}

// No token counts: a scale of zero is a gradient of zeros, not a missing one.
TEST(CrossEntropy, ScaleOfZeroOverwrites) {
  Exec exec;
  Problem p(DType::kF32, 6, 40);
  const StepState state{.grad_scale = 0};
  LossSums sums;
  cross_entropy(exec, &sums, p.logits, p.vocab, {p.labels.data(), DType::kI32, {6}}, &state);
  EXPECT_EQ(p.logits.floats(), std::vector<float>(240, 0.0f));
}

TEST(CrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  Exec exec;
  Problem p(DType::kF32, 2, 10);
  p.labels = {3, 10};
  EXPECT_EQ(error_of([&] { p.run(exec, 1, 0); }), "cross_entropy: labels[1] is 10, expected 0 to 9 or -100");
}

}  // namespace
}  // namespace mantissa
