// Training with 8-bit moments against FP32 ones: a student network learns a teacher's classes from the same batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/adamw.h"
#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

constexpr int kIn = 48, kHidden = 96, kOut = 24, kBatch = 64, kHeldOut = 2048;

// tanh layer, softmax layer; no biases.
struct Network {
  std::vector<float> first, second;  // [kHidden, kIn], [kOut, kHidden]
  std::vector<float> d_first, d_second;

  explicit Network(uint32_t seed)
      : first(random_normal(kHidden * kIn, seed, 1.5f / std::sqrt(float{kIn}))),
        second(random_normal(kOut * kHidden, seed + 1, 1.5f / std::sqrt(float{kHidden}))),
        d_first(first.size()),
        d_second(second.size()) {}

  void logits(float* out, float* hidden, const float* x) const {
    for (int h = 0; h < kHidden; ++h) {
      float sum = 0;
      for (int i = 0; i < kIn; ++i) sum += first[static_cast<size_t>(h * kIn + i)] * x[i];
      hidden[h] = std::tanh(sum);
    }
    for (int o = 0; o < kOut; ++o) {
      out[o] = 0;
      for (int h = 0; h < kHidden; ++h) out[o] += second[static_cast<size_t>(o * kHidden + h)] * hidden[h];
    }
  }
  // Cross-entropy of one example; its gradient times `scale` is added where scale is not zero.
  double loss(const float* x, int label, float scale) {
    float hidden[kHidden], p[kOut];
    logits(p, hidden, x);
    const float top = *std::max_element(p, p + kOut);
    double sum = 0;
    for (const float z : p) sum += std::exp(z - top);
    const double loss = std::log(sum) + top - p[label];
    if (scale == 0) return loss;
    float d_hidden[kHidden] = {};
    for (int o = 0; o < kOut; ++o) {
      const float d = scale * (static_cast<float>(std::exp(p[o] - top) / sum) - static_cast<float>(o == label));
      for (int h = 0; h < kHidden; ++h) {
        d_second[static_cast<size_t>(o * kHidden + h)] += d * hidden[h];
        d_hidden[h] += d * second[static_cast<size_t>(o * kHidden + h)];
      }
    }
    for (int h = 0; h < kHidden; ++h) {
      const float d = d_hidden[h] * (1 - hidden[h] * hidden[h]);
      for (int i = 0; i < kIn; ++i) d_first[static_cast<size_t>(h * kIn + i)] += d * x[i];
    }
    return loss;
  }
};

struct State {
  std::vector<std::byte> m, v;
  std::vector<float> m_scale, v_scale;
  State(DType dtype, size_t n)
      : m(static_cast<size_t>(bytes_of(dtype, static_cast<int64_t>(n)))),
        v(m.size()),
        m_scale((n + kMomentBlock - 1) / kMomentBlock),
        v_scale(m_scale.size()) {}
  AdamwParam param(std::vector<float>& x, std::vector<float>& grad, DType dtype, uint32_t id) {
    const auto n = static_cast<int64_t>(x.size()), blocks = static_cast<int64_t>(m_scale.size());
    return {.param = {x.data(), DType::kF32, {n}},
            .copy = {},
            .grad = {grad.data(), DType::kF32, {n}},
            .m = {m.data(), dtype, {n}},
            .v = {v.data(), dtype, {n}},
            .m_scale = {m_scale.data(), DType::kF32, {blocks}},
            .v_scale = {v_scale.data(), DType::kF32, {blocks}},
            .id = id};
  }
};

// The loss on held-out examples after `steps`; labels are drawn from the teacher's softmax.
double final_loss(DType state, float beta2, uint32_t seed, int steps) {
  Exec exec;
  const Network teacher(77);
  Network student(seed);
  State first(state, student.first.size()), second(state, student.second.size());
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  const auto draw_example = [&](float* x) {
    // Inputs of very different scale: gradients within a block of 128 then differ by a thousand.
    for (int i = 0; i < kIn; ++i) x[i] = normal(generator) * std::pow(10.0f, -3.0f * static_cast<float>(i % 4) / 3);
    float hidden[kHidden], p[kOut];
    teacher.logits(p, hidden, x);
    float sum = 0;
    for (float& z : p) sum += z = std::exp(3 * z);
    float left = uniform(generator) * sum;
    int label = 0;
    while (label + 1 < kOut && (left -= p[label]) > 0) ++label;
    return label;
  };
  std::vector<AdamwParam> params{first.param(student.first, student.d_first, state, 0),
                                 second.param(student.second, student.d_second, state, 1)};
  float x[kIn];
  for (int t = 1; t <= steps; ++t) {
    std::fill(student.d_first.begin(), student.d_first.end(), 0.0f);
    std::fill(student.d_second.begin(), student.d_second.end(), 0.0f);
    for (int b = 0; b < kBatch; ++b) {
      const int label = draw_example(x);
      student.loss(x, label, 1.0f / kBatch);
    }
    AdamwOutcome outcome;
    const float share = static_cast<float>(t) / static_cast<float>(steps);
    const AdamwStep step{
        .lr = 3e-3f * (0.5f + 0.5f * std::cos(3.14159265f * share)), .beta2 = beta2, .weight_decay = 0.01f, .t = t};
    adamw_update(exec, &outcome, params, step, 1.0, false);
  }
  generator.seed(6);
  double loss = 0;
  for (int b = 0; b < kHeldOut; ++b) {
    const int label = draw_example(x);
    loss += student.loss(x, label, 0);
  }
  return loss / kHeldOut;
}

TEST(Moments, EightBitsTrainAsWellAsFp32) {
  for (const float beta2 : {0.95f, 0.999f})
    for (const uint32_t seed : {1u, 2u}) {
      const double wide = final_loss(DType::kF32, beta2, seed, 600), narrow = final_loss(DType::kU8, beta2, seed, 600);
      RecordProperty(fmt::format("beta2_{}_seed_{}", beta2, seed), fmt::format("{:.5f} {:.5f}", wide, narrow));
      EXPECT_LT(wide, 0.8 * std::log(kOut));  // it learned
      EXPECT_LT(narrow, 1.005 * wide) << "beta2 " << beta2 << ", seed " << seed << ": fp32 " << wide;
    }
}

}  // namespace
}  // namespace mantissa
