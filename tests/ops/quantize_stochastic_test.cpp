// Stochastic rounding of E2M1: the bits are named by (seed, step, tensor, form, element) and nothing else; statistics.
#include <gtest/gtest.h>
#include <omp.h>

#include "numerics/block_scale.h"
#include "tests/ops/quantize_reference.h"

namespace mantissa {
namespace {

using test::Matrix;
using test::OwnedCopy;
using test::random_matrix;

constexpr QuantFormat kNearest{
    .element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16};

QuantFormat stochastic(bool hadamard = false) {
  QuantFormat f = kNearest;
  f.stochastic = true;
  f.hadamard = hadamard;
  return f;
}

std::vector<uint8_t> codes_of(Exec& exec, const QuantFormat& f, bool columnwise, ConstTensor x, uint32_t tensor,
                              const float* amax = nullptr) {
  OwnedCopy copy(f, columnwise, x.rows(), x.cols());
  quantize_form(exec, copy.q, columnwise, x, tensor, amax);
  return copy.codes();
}

std::vector<float> values_of(Exec& exec, const QuantFormat& f, bool columnwise, const Matrix& x, uint32_t tensor = 3) {
  OwnedCopy copy(f, columnwise, x.m, x.k);
  quantize_form(exec, copy.q, columnwise, x.tensor(), tensor, nullptr);
  std::vector<float> y(static_cast<size_t>(x.m * x.k));
  dequantize(exec, Tensor(y.data(), DType::kF32, copy.q.data.shape), copy.q);
  return y;
}

// Every code from the definition of its random byte: element e = (token_offset + m) K + k takes byte e % 16 of draw e
// / 16.
TEST(QuantizeStochastic, DrawsByElement) {
  for (auto [m, k] : {std::pair<int64_t, int64_t>{48, 144}, {32, 50}, {20, 302}})
    for (bool columnwise : {false, true})
      for (int64_t offset : {int64_t{0}, int64_t{7}}) {
        const Matrix x = random_matrix(m, k, true, 21);
        Exec exec;
        exec.state.seed = 0x1234567890abcdefull;
        exec.state.step = 5;
        exec.state.token_offset = offset;
        OwnedCopy copy(stochastic(), columnwise, m, k);
        quantize_form(exec, copy.q, columnwise, x.tensor(), 9, nullptr);
        const RandomKey key{exec.state.seed, 5, 9, columnwise ? DrawForm::kColumnwise : DrawForm::kRowwise};
        const Nvfp4TensorScale tensor = nvfp4_tensor_scale(*copy.q.amax);
        const std::vector<uint32_t> scales = copy.scales();
        const std::vector<uint8_t> codes = copy.codes();
        const int64_t outer = copy.q.data.dim(0), inner = copy.q.data.dim(1), blocks = ceil_div(inner, 16);
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            const int64_t row = columnwise ? i : o, column = columnwise ? o : i, e = (offset + row) * k + column;
            const Random4 bits = draw(key, static_cast<uint64_t>(e / 16));
            const auto random = static_cast<uint8_t>(bits.x[e % 16 / 4] >> (e % 4 * 8));
            const auto scale = static_cast<uint8_t>(scales[static_cast<size_t>(o * blocks + i / 16)]);
            const float scaled = x.at(row, column) * nvfp4_encode_scale(scale, tensor.decode);
            ASSERT_EQ(codes[static_cast<size_t>(o * inner + i)], encode_e2m1_stochastic(scaled, random))
                << o << "," << i << " of [" << outer << "," << inner << "]";
          }
      }
}

TEST(QuantizeStochastic, SameKeySameBitsOtherKeyOtherBits) {
  const Matrix x = random_matrix(64, 96, true, 22);
  for (bool columnwise : {false, true})
    for (bool hadamard : {false, true}) {
      if (hadamard && !columnwise) continue;
      const QuantFormat f = stochastic(hadamard);
      Exec exec;
      exec.state.seed = 1;
      const auto first = codes_of(exec, f, columnwise, x.tensor(), 3);
      EXPECT_EQ(codes_of(exec, f, columnwise, x.tensor(), 3), first);
      EXPECT_NE(codes_of(exec, f, columnwise, x.tensor(), 4), first);
      exec.state.step = 1;
      EXPECT_NE(codes_of(exec, f, columnwise, x.tensor(), 3), first);
      exec.state.step = 0;
      exec.state.seed = 2;
      EXPECT_NE(codes_of(exec, f, columnwise, x.tensor(), 3), first);
      exec.state.seed = 1;
      exec.pass = Pass::kReplay;
      EXPECT_EQ(codes_of(exec, f, columnwise, x.tensor(), 3), first);
      const int threads = omp_get_max_threads();
      for (int n : {1, 3}) {
        omp_set_num_threads(n);
        Exec other;
        other.state.seed = 1;
        EXPECT_EQ(codes_of(other, f, columnwise, x.tensor(), 3), first);
      }
      omp_set_num_threads(threads);
      for (Isa isa : {Isa::kBase, Isa::kAvx2}) {
        if (isa > detect_isa()) continue;
        Exec other(isa);
        other.state.seed = 1;
        EXPECT_EQ(codes_of(other, f, columnwise, x.tensor(), 3), first);
      }
    }
}

// 64 tokens at once and 32 + 32 with an offset, of micro-batches or of chunks, draw the same bits; the tensor's amax is
// given so that scales agree.
TEST(QuantizeStochastic, TokenOffsetMakesTheLayoutIrrelevant) {
  const Matrix x = random_matrix(64, 80, true, 23);
  const float amax = 900;
  Exec exec;
  exec.state.token_offset = 128;
  const auto whole_rows = codes_of(exec, stochastic(), false, x.tensor(), 3, &amax);
  const auto whole_columns = codes_of(exec, stochastic(), true, x.tensor(), 3, &amax);
  for (auto [half, chunks] : {std::pair<int64_t, bool>{0, false}, {1, false}, {1, true}}) {
    exec.state.token_offset = chunks ? 128 : 128 + half * 32;
    exec.row_offset = chunks ? half * 32 : 0;
    const ConstTensor part = x.tensor().slice(half * 32, 32);
    const auto rows = codes_of(exec, stochastic(), false, part, 3, &amax);
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), whole_rows.begin() + half * 32 * 80));
    const auto columns = codes_of(exec, stochastic(), true, part, 3, &amax);
    for (int64_t c = 0; c < 80; ++c)
      for (int64_t i = 0; i < 32; ++i)
        ASSERT_EQ(columns[static_cast<size_t>(c * 32 + i)], whole_columns[static_cast<size_t>(c * 64 + half * 32 + i)]);
  }
}

TEST(QuantizeStochastic, CodesAreNeighbours) {
  const Matrix x = random_matrix(128, 128, true, 24);
  Exec exec;
  OwnedCopy copy(stochastic(), false, x.m, x.k);
  quantize_form(exec, copy.q, false, x.tensor(), 3, nullptr);
  const Nvfp4TensorScale tensor = nvfp4_tensor_scale(*copy.q.amax);
  const auto codes = copy.codes();
  const auto scales = copy.scales();
  int64_t above = 0, below = 0;
  for (int64_t i = 0; i < x.m * x.k; ++i) {
    const float scaled = x.values[static_cast<size_t>(i)] *
                         nvfp4_encode_scale(static_cast<uint8_t>(scales[static_cast<size_t>(i / 16)]), tensor.decode);
    const float a = std::min(std::abs(scaled), 6.0f), q = std::abs(decode_e2m1(codes[static_cast<size_t>(i)]));
    const float step = a < 2 ? 0.5f : a < 4 ? 1 : 2;
    ASSERT_LT(std::abs(q - a), step);
    above += q > a;
    below += q < a;
  }
  EXPECT_GT(above, x.m * x.k / 5);
  EXPECT_GT(below, x.m * x.k / 5);
}

// The mean of many draws nears the source: its error falls well below that of rounding to nearest, in both copies.
TEST(QuantizeStochastic, MeanOfDrawsBeatsNearest) {
  Matrix x = random_matrix(64, 64, true, 25);
  std::vector<float> tame = x.values;
  for (float& v : tame) v = std::abs(v) > 4 ? 4.0f : v;
  x.set(tame);
  constexpr int kDraws = 256;
  for (bool columnwise : {false, true}) {
    const auto source = [&](size_t i) {
      const auto index = static_cast<int64_t>(i);
      return columnwise ? x.at(index % x.m, index / x.m) : x.values[i];
    };
    Exec exec;
    std::vector<double> mean(static_cast<size_t>(x.m * x.k));
    for (uint32_t step = 0; step < kDraws; ++step) {
      exec.state.step = step;
      const auto y = values_of(exec, stochastic(), columnwise, x);
      for (size_t i = 0; i < y.size(); ++i) mean[i] += y[i] / static_cast<double>(kDraws);
    }
    const auto nearest = values_of(exec, kNearest, columnwise, x);
    double noise_mean = 0, noise_nearest = 0, bias = 0, sum = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      noise_mean += (mean[i] - source(i)) * (mean[i] - source(i));
      noise_nearest += (nearest[i] - source(i)) * (nearest[i] - source(i));
      bias += (mean[i] - source(i)) * (source(i) < 0 ? -1 : 1);
      sum += std::abs(source(i));
    }
    // Independent draws: variance falls as 1/256, from about twice that of rounding to nearest; clipping at 6 stays.
    EXPECT_LT(noise_mean, 0.05 * noise_nearest);
    // Toward zero by half of 1/256 of a step on average, and by clipped elements; a step is about |x| / 2.
    EXPECT_LT(std::abs(bias), 0.005 * sum);
  }
}

}  // namespace
}  // namespace mantissa
