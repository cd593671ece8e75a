#include "ops/loss.h"

#include <array>
#include <cmath>
#include <cstring>

#include "numerics/bf16.h"
#include "ops/elementwise.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuLoss = GpuTest;

struct Problem {
  int64_t rows, cols, vocab;
  DType dtype;
  float spread = 3;
  bool ignored = true;  // every fifth label

  std::vector<float> logits() const {
    std::vector<float> x = random_values(rows * cols, 1, spread);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = vocab; c < cols; ++c) x[static_cast<size_t>(r * cols + c)] = NAN;  // takes no part
    return x;
  }
  std::vector<int32_t> labels() const {
    std::vector<int32_t> y;
    for (int64_t r = 0; r < rows; ++r)
      y.push_back(ignored && r % 5 == 3 ? -100 : static_cast<int32_t>((r * 7919 + 13) % vocab));
    if (rows > 0 && y[0] >= 0) y[0] = static_cast<int32_t>(vocab - 1);
    return y;
  }
};

struct Result {
  LossSums sums;
  std::vector<std::byte> bytes;
  std::vector<float> gradient;
};

Result on_cpu(const Problem& p, const std::vector<float>& logits, const std::vector<int32_t>& labels,
              const float* grad_scale, float z_weight) {
  Exec exec;
  const StepState state{.grad_scale = grad_scale ? *grad_scale : 0.0f, .z_weight = z_weight};
  Result result;
  result.bytes = packed(logits, p.dtype);
  const Tensor x(result.bytes.data(), p.dtype, {p.rows, p.cols});
  cross_entropy(exec, &result.sums, x, p.vocab, {labels.data(), DType::kI32, {p.rows}}, grad_scale ? &state : nullptr);
  std::vector<float> wide(logits.size());
  cast(exec, {wide.data(), DType::kF32, {p.rows, p.cols}}, x);
  result.gradient = wide;
  return result;
}

Result on_gpu(Exec& exec, const Problem& p, const std::vector<float>& logits, const std::vector<int32_t>& labels,
              const float* grad_scale, float z_weight, int calls = 1) {
  Device& device = *exec.device();
  const std::vector<std::byte> bytes = packed(logits, p.dtype);
  const OnDevice y(device, ConstTensor(labels.data(), DType::kI32, {p.rows}));
  const StepState host{.grad_scale = grad_scale ? *grad_scale : 0.0f, .z_weight = z_weight};
  const OnDevice state(device, ConstTensor(&host, DType::kU8, {int64_t{sizeof host}}));
  LossSums zero;
  OnDevice sums(device, ConstTensor(&zero, DType::kU8, {int64_t{sizeof zero}}));
  Result result;
  for (int call = 0; call < calls; ++call) {
    const OnDevice x(device, ConstTensor(bytes.data(), p.dtype, {p.rows, p.cols}));
    cross_entropy(exec, sums.as<LossSums>(), x, p.vocab, y, grad_scale ? state.as<StepState>() : nullptr);
    result.bytes = x.bytes();
    result.gradient = x.floats();
  }
  const std::vector<std::byte> raw = sums.bytes();
  std::memcpy(&result.sums, raw.data(), sizeof result.sums);
  return result;
}

TEST_F(GpuLoss, AgreesWithTheCpu) {
  const float scale = 0.125f;
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const auto& [rows, cols, vocab] : {std::array<int64_t, 3>{1, 8, 1},
                                            {3, 8, 5},
                                            {7, 100, 100},
                                            {9, 257, 250},
                                            {5, 2176, 2100},
                                            {700, 512, 500},
                                            {9, 50304, 50257},
                                            {420, 32000, 32000},
                                            {20, 128256, 128256},
                                            {130, 151936, 151936},
                                            {2, 50257, 50257},
                                            {3, 1000008, 1000001}})
      for (const float z_weight : {0.0f, 1e-2f}) {
        if (z_weight != 0 && rows > 100) continue;
        SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << rows << " x " << cols << " vocab " << vocab);
        const Problem p{rows, cols, vocab, dtype};
        const std::vector<float> logits = p.logits();
        const std::vector<int32_t> labels = p.labels();
        const Result want = on_cpu(p, logits, labels, &scale, z_weight);
        const Result got = on_gpu(exec(), p, logits, labels, &scale, z_weight);
        EXPECT_EQ(got.sums.valid, want.sums.valid);
        EXPECT_NEAR(got.sums.loss, want.sums.loss, 1e-6 * (want.sums.loss + 1));
        EXPECT_NEAR(got.sums.z, want.sums.z, 1e-6 * (want.sums.z + 1));
        EXPECT_LT(relative_error(got.gradient, want.gradient), dtype == DType::kF32 ? 5e-6 : 4e-3);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = labels[static_cast<size_t>(r)] == -100 ? 0 : vocab; c < cols; ++c)
            ASSERT_EQ(got.gradient[static_cast<size_t>(r * cols + c)], 0) << r << " " << c;
        // Twice the same bits, and sums that add up.
        const Result again = on_gpu(exec(), p, logits, labels, &scale, z_weight, 2);
        EXPECT_EQ(again.bytes, got.bytes);
        EXPECT_EQ(again.sums.loss, 2 * got.sums.loss);
        EXPECT_EQ(again.sums.z, 2 * got.sums.z);
        EXPECT_EQ(again.sums.valid, 2 * got.sums.valid);
        // Losses alone leave the logits.
        const Result alone = on_gpu(exec(), p, logits, labels, nullptr, z_weight);
        EXPECT_EQ(alone.bytes, packed(logits, dtype));
        EXPECT_EQ(alone.sums.loss, got.sums.loss);
        EXPECT_EQ(alone.sums.z, got.sums.z);
      }
}

// More rows than clusters run at once, of vocabularies that take the largest clusters and more than one visit of them.
TEST_F(GpuLoss, ClustersTakeRowAfterRow) {
  const float scale = 0.125f;
  for (const Problem& p : {Problem{700, 151936, 151936, DType::kBF16}, Problem{300, 400000, 400000, DType::kBF16}}) {
    SCOPED_TRACE(testing::Message() << p.rows << " x " << p.cols);
    const std::vector<float> logits = p.logits();
    const std::vector<int32_t> labels = p.labels();
    const Result want = on_cpu(p, logits, labels, &scale, 1e-2f),
                 got = on_gpu(exec(), p, logits, labels, &scale, 1e-2f);
    EXPECT_EQ(got.sums.valid, want.sums.valid);
    EXPECT_NEAR(got.sums.loss, want.sums.loss, 1e-6 * (want.sums.loss + 1));
    EXPECT_NEAR(got.sums.z, want.sums.z, 1e-6 * (want.sums.z + 1));
    for (int64_t r = 0; r < p.rows; ++r) {  // row by row: one that is wrong is not hidden by the others
      const auto row = [&](const std::vector<float>& x) {
        return std::vector<float>(x.begin() + r * p.cols, x.begin() + (r + 1) * p.cols);
      };
      const std::vector<float> expected = row(want.gradient);
      if (labels[static_cast<size_t>(r)] == -100)
        ASSERT_EQ(row(got.gradient), expected) << "row " << r;
      else
        ASSERT_LT(relative_error(row(got.gradient), expected), 4e-3) << "row " << r;
    }
  }
}

TEST_F(GpuLoss, ExtremesOfOneRow) {
  const float scale = 1, inf = INFINITY;
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const int64_t cols : {int64_t{40}, int64_t{151936}}) {
      const Problem p{1, cols, cols, dtype};
      std::vector<float> x(static_cast<size_t>(cols), -inf);
      x[0] = 1e4f, x[1] = -1e4f;
      const Result far = on_gpu(exec(), p, x, {1}, &scale, 0);
      EXPECT_NEAR(far.sums.loss, double{to_float(to_bf16(1e4f))} * 2, 300);
      EXPECT_EQ(far.gradient[0], 1);
      EXPECT_EQ(far.gradient[1], -1);
      EXPECT_EQ(far.gradient[static_cast<size_t>(cols - 1)], 0);
      // What is not finite reaches the loss, wherever it stands.
      for (const float bad : {NAN, inf})
        for (const int64_t at : {int64_t{0}, int64_t{31}, cols / 2, cols - 1})
          for (const float rest : {0.0f, -inf}) {
            std::vector<float> y(static_cast<size_t>(cols), rest);
            y[static_cast<size_t>(at)] = bad;
            EXPECT_FALSE(std::isfinite(on_gpu(exec(), p, y, {5}, &scale, 0).sums.loss)) << at << " " << bad;
          }
      EXPECT_FALSE(std::isfinite(on_gpu(exec(), p, std::vector<float>(x.size(), -inf), {5}, &scale, 0).sums.loss));
    }
}

TEST_F(GpuLoss, IgnoredRowsAreNotRead) {
  const float scale = 1;
  const Problem p{250, 50304, 50257, DType::kBF16};
  const Result got =
      on_gpu(exec(), p, std::vector<float>(250 * 50304, NAN), std::vector<int32_t>(250, -100), &scale, 0.1f);
  EXPECT_EQ(got.sums.loss, 0);
  EXPECT_EQ(got.sums.z, 0);
  EXPECT_EQ(got.sums.valid, 0);
  EXPECT_EQ(got.bytes, std::vector<std::byte>(got.bytes.size()));
}

// No token counts: a scale of zero is a gradient of zero, not a missing one.
TEST_F(GpuLoss, ScaleOfZeroOverwrites) {
  const float scale = 0;
  const Problem p{6, 96, 90, DType::kF32};
  const Result got = on_gpu(exec(), p, p.logits(), p.labels(), &scale, 0);
  for (const float x : got.gradient) EXPECT_EQ(x, 0);
}

// A graph holds no value of a step: another scale and z weight need no other graph.
TEST_F(GpuLoss, RunsInAGraph) {
  const Problem p{64, 151936, 151936, DType::kBF16};
  const std::vector<std::byte> bytes = packed(p.logits(), p.dtype);
  const std::vector<int32_t> labels = p.labels();
  const StepState first{.grad_scale = 0.5f};
  const OnDevice y(device(), ConstTensor(labels.data(), DType::kI32, {p.rows}));
  OnDevice state(device(), ConstTensor(&first, DType::kU8, {int64_t{sizeof first}}));
  const LossSums zero;
  OnDevice eager(device(), ConstTensor(bytes.data(), p.dtype, {p.rows, p.cols})),
      replayed(device(), p.dtype, {p.rows, p.cols});
  const OnDevice sums(device(), ConstTensor(&zero, DType::kU8, {int64_t{sizeof zero}}));
  const auto run = [&](const OnDevice& x) {
    cross_entropy(exec(), sums.as<LossSums>(), x, p.vocab, y, state.as<StepState>());
  };
  const auto graph = device().capture([&] { run(replayed); });
  std::vector<std::byte> before;
  for (const StepState& step : {first, StepState{.grad_scale = 0.5f, .z_weight = 0.01f}, StepState{.grad_scale = 2}}) {
    state.upload({&step, DType::kU8, {int64_t{sizeof step}}});
    for (OnDevice* x : {&eager, &replayed}) x->upload({bytes.data(), p.dtype, {p.rows, p.cols}});
    run(eager);
    graph->launch();
    EXPECT_EQ(replayed.bytes(), eager.bytes());
    EXPECT_NE(replayed.bytes(), before);
    before = replayed.bytes();
  }
}

}  // namespace
}  // namespace mantissa
