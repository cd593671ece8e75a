// Every format, both copies, ragged shapes, non-finite values: against the element-wise reference; errors; determinism.
#include "ops/quantize.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <limits>

#include "numerics/block_scale.h"
#include "tests/ops/quantize_reference.h"

namespace mantissa {
namespace {

using namespace test;

void expect_reference(Exec& exec, const QuantFormat& f, bool columnwise, const Matrix& x, float given = 0.37f) {
  if (f.element == DType::kE2M1 && (columnwise ? x.m : x.k) % 2 != 0) return;
  SCOPED_TRACE(fmt::format("{} {} of [{},{}] {}", describe(f), columnwise ? "columnwise" : "rowwise", x.m, x.k,
                           x.is_bf16 ? "bf16" : "f32"));
  OwnedCopy copy(f, columnwise, x.m, x.k);
  copy.given = given;
  quantize_form(exec, copy.q, columnwise, x.tensor(), 7, nullptr);
  const ReferenceCopy expected = reference_copy(f, columnwise, x, given);
  EXPECT_EQ(*copy.q.amax, expected.amax);
  EXPECT_EQ(copy.scales(), expected.scales);
  EXPECT_EQ(copy.codes(), expected.codes);
}

TEST(Quantize, MatchesTheReference) {
  Exec exec;
  for (auto [m, k] : {std::pair<int64_t, int64_t>{128, 256}, {144, 176}, {303, 300}, {16, 16}, {1, 130}, {48, 1}}) {
    for (bool is_bf16 : {true, false}) {
      if (!is_bf16 && m == 303) continue;
      const Matrix x = random_matrix(m, k, is_bf16, 11);
      for (const QuantFormat& f : all_formats())
        for (bool columnwise : {false, true}) expect_reference(exec, f, columnwise, x);
    }
  }
}

TEST(Quantize, MatchesTheReferenceRotated) {
  Exec exec;
  const QuantFormat f{
      .element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16, .hadamard = true};
  for (auto [m, k] : {std::pair<int64_t, int64_t>{128, 256}, {144, 176}, {304, 301}, {16, 1}})
    expect_reference(exec, f, true, random_matrix(m, k, true, 12));
}

TEST(Quantize, InstructionSetsAgree) {
  const Matrix x = random_matrix(144, 176, true, 13);
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512}) {
    if (isa > detect_isa()) continue;
    Exec exec(isa);
    for (const QuantFormat& f : all_formats())
      for (bool columnwise : {false, true}) expect_reference(exec, f, columnwise, x);
  }
}

// Zeros of both signs, NaN, Inf, values at the ends of the range: alone in their blocks and next to ordinary ones.
TEST(Quantize, NonFiniteAndExtremeValues) {
  Exec exec;
  for (float special : {0.0f, -0.0f, kNan, kInf, -kInf, 1e-45f, 1e-38f, 1e-30f, 3e38f, 0x1.fffffep127f})
    for (bool is_bf16 : {true, false})
      for (bool alone : {true, false}) {
        if (alone && !is_bf16) continue;
        SCOPED_TRACE(fmt::format("special {} alone {}", special, alone));
        Matrix x = random_matrix(48, 144, is_bf16, 14);
        std::vector<float> v = x.values;
        for (size_t i = 0; i < v.size(); ++i)
          if (alone ? true : i % 133 == 5) v[i] = special;
        x.set(v);
        for (const QuantFormat& f : all_formats())
          for (bool columnwise : {false, true}) expect_reference(exec, f, columnwise, x);
      }
}

// Values laid on and beside every rounding boundary of E2M1 once scaled, and a block scale that flushes to zero.
TEST(Quantize, Nvfp4Boundaries) {
  Exec exec;
  Matrix x{32, 64, true, {}, {}};
  std::vector<float> v(32 * 64);
  for (size_t i = 0; i < v.size(); ++i) {
    const float edges[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f};
    const float e = edges[i % 8] * (i % 3 == 0 ? 1.0078125f : i % 3 == 1 ? 1.0f : 0.9921875f);
    v[i] = (i / 16) % 5 == 4 ? e * 1e-7f : i % 2 ? e : -e;
  }
  x.set(v);
  for (const QuantFormat& f : all_formats())
    if (f.element == DType::kE2M1)
      for (bool columnwise : {false, true}) expect_reference(exec, f, columnwise, x);
}

// Both copies of one operand equal the copies made alone, for any number of threads.
TEST(Quantize, OperandFillsBothCopies) {
  const Matrix x = random_matrix(304, 272, true, 15);
  const int threads = omp_get_max_threads();
  for (const QuantFormat& f : all_formats()) {
    SCOPED_TRACE(describe(f));
    std::vector<uint8_t> rows, columns;
    for (int n : {1, 2, 5}) {
      omp_set_num_threads(n);
      Exec exec;
      OwnedCopy row(f, false, x.m, x.k), column(f, true, x.m, x.k), alone_row(f, false, x.m, x.k),
          alone_column(f, true, x.m, x.k);
      Operand operand;
      operand.high = Tensor(const_cast<bf16*>(x.rounded.data()), DType::kBF16, {x.m, x.k});
      operand.rowwise = row.q;
      operand.columnwise = column.q;
      quantize(exec, operand);
      quantize_form(exec, alone_row.q, false, x.tensor(), 0, nullptr);
      quantize_form(exec, alone_column.q, true, x.tensor(), 0, nullptr);
      EXPECT_EQ(row.codes(), alone_row.codes());
      EXPECT_EQ(row.scales(), alone_row.scales());
      EXPECT_EQ(column.codes(), alone_column.codes());
      EXPECT_EQ(column.scales(), alone_column.scales());
      EXPECT_EQ(*column.q.amax, *alone_column.q.amax);
      if (rows.empty()) rows = row.codes(), columns = column.codes();
      EXPECT_EQ(row.codes(), rows);
      EXPECT_EQ(column.codes(), columns);
      if (f.blocking == Blocking::kRow) continue;
      for (int64_t i = 0; i < x.m; ++i)  // the same codes, turned
        for (int64_t j = 0; j < x.k; ++j)
          ASSERT_EQ(columns[static_cast<size_t>(j * x.m + i)], rows[static_cast<size_t>(i * x.k + j)]);
    }
  }
  omp_set_num_threads(threads);
}

TEST(Quantize, ProducerAmaxReplacesTheSources) {
  Exec exec;
  const Matrix x = random_matrix(32, 48, true, 16);
  const float amax = 1000;
  const QuantFormat current{.element = DType::kE4M3, .rule = ScaleRule::kCurrent, .blocking = Blocking::kTensor};
  OwnedCopy copy(current, false, x.m, x.k);
  quantize_form(exec, copy.q, false, x.tensor(), 0, &amax);
  EXPECT_EQ(*copy.q.amax, 1000);
  EXPECT_EQ(copy.q.scale_inv.as<float>()[0], 1.0f / (448.0f / 1000.0f));
}

TEST(Quantize, DequantizeAndError) {
  Exec exec;
  const Matrix x = random_matrix(144, 176, true, 17);
  std::vector<QuantFormat> formats = all_formats();
  formats.push_back(
      {.element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16, .hadamard = true});
  for (const QuantFormat& f : formats)
    for (bool columnwise : {false, true}) {
      if (f.hadamard && !columnwise) continue;
      SCOPED_TRACE(fmt::format("{} {}", describe(f), columnwise ? "columnwise" : "rowwise"));
      OwnedCopy copy(f, columnwise, x.m, x.k);
      copy.given = 0.37f;
      quantize_form(exec, copy.q, columnwise, x.tensor(), 0, nullptr);
      const int64_t outer = copy.q.data.dim(0), inner = copy.q.data.dim(1);
      std::vector<float> y(static_cast<size_t>(outer * inner));
      dequantize(exec, Tensor(y.data(), DType::kF32, {outer, inner}), copy.q);

      const std::vector<uint8_t> codes = copy.codes();
      const std::vector<uint32_t> scales = copy.scales();
      double signal = 0, noise = 0;
      int64_t flushed = 0;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const auto at = static_cast<size_t>(o * inner + i);
          const int64_t nb = f.block ? ceil_div(inner, f.block) : 1;
          const int64_t line = f.blocking == Blocking::kTensor ? 0 : f.blocking == Blocking::kRow ? o : o / f.block;
          const uint32_t s = scales[static_cast<size_t>(line * nb + (f.block ? i / f.block : 0))];
          const auto code = codes[at];
          float expected = 0;
          if (f.rule == ScaleRule::kNvfp4)
            expected = decode_e2m1(code) * (decode_e4m3(static_cast<uint8_t>(s)) * *copy.q.amax * (1.0f / 2688.0f));
          else
            expected = (f.element == DType::kE4M3 ? decode_e4m3(code) : decode_e5m2(code)) *
                       (f.rule == ScaleRule::kE8M0 ? static_cast<float>(std::ldexp(1.0, static_cast<int>(s) - 127))
                                                   : std::bit_cast<float>(s));
          ASSERT_EQ(y[at], expected);
          if (f.hadamard) continue;
          const double value = columnwise ? x.at(i, o) : x.at(o, i);
          signal += value * value;
          noise += (value - expected) * (value - expected);
          flushed += value != 0 && expected == 0;
        }
      const QuantError error = quantization_error(exec, copy.q, columnwise, x.tensor());
      EXPECT_EQ(error.count, outer * inner);
      if (f.hadamard) {
        EXPECT_GT(error.snr_db(), 18);  // E2M1 with two-level scales
        continue;
      }
      EXPECT_NEAR(error.signal, signal, 1e-9 * signal);
      EXPECT_NEAR(error.noise, noise, 1e-9 * noise);
      EXPECT_EQ(error.flushed, flushed);
      if (f.rule == ScaleRule::kCurrent || f.rule == ScaleRule::kCurrentPow2 || f.rule == ScaleRule::kE8M0) {
        EXPECT_EQ(error.saturated, 0);
      }
    }
}

TEST(Quantize, ErrorCountsSaturation) {
  Exec exec;
  Matrix x{8, 16, true, {}, {}};
  std::vector<float> v(128, 1.0f);
  v[3] = 500, v[40] = -4000, v[70] = 448;
  x.set(v);
  OwnedCopy copy({.element = DType::kE4M3, .rule = ScaleRule::kGiven, .blocking = Blocking::kTensor}, false, 8, 16);
  quantize_form(exec, copy.q, false, x.tensor(), 0, nullptr);
  EXPECT_EQ(quantization_error(exec, copy.q, false, x.tensor()).saturated, 2);
  EXPECT_EQ(*copy.q.amax, 4000);
}

template <class Body>
void expect_error(Exit code, const std::string& part, Body&& body) {
  try {
    body();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Quantize, Errors) {
  Exec exec;
  const QuantFormat rotated{
      .element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = Blocking::kRow, .block = 16, .hadamard = true};
  const Matrix odd = random_matrix(24, 32, true, 1), wide = random_matrix(32, 32, false, 1);
  OwnedCopy a(rotated, true, 24, 32), b(rotated, true, 32, 32);
  expect_error(Exit::kUsage, "24 tokens, expected a multiple of 16",
               [&] { quantize_form(exec, a.q, true, odd.tensor(), 0, nullptr); });
  expect_error(Exit::kUsage, "expected bf16", [&] { quantize_form(exec, b.q, true, wide.tensor(), 0, nullptr); });
  OwnedCopy c({.element = DType::kE4M3, .rule = ScaleRule::kE8M0, .blocking = Blocking::kRow, .block = 32}, false, 32,
              32);
  expect_error(Exit::kInternal, "expected [24,32]", [&] { quantize_form(exec, c.q, false, odd.tensor(), 0, nullptr); });
  c.q.format.block = 48;
  expect_error(Exit::kInternal, "block 48", [&] { quantize_form(exec, c.q, false, wide.tensor(), 0, nullptr); });
}

}  // namespace
}  // namespace mantissa
