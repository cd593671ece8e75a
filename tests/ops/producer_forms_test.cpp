// Norms and activations fill the quantized forms of their output as the casts of the value that they wrote would.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/activation.h"
#include "ops/norm.h"
#include "ops/quantize.h"
#include "tensor/arena.h"
#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using namespace mantissa::test;

constexpr int64_t kTokens = 64, kCols = 96;

struct Case {
  const char* name;
  DType high;
  QuantFormat format;
  bool producer_amax;
};

constexpr Case kCases[] = {
    {"delayed, unrounded", DType::kF32, {.rule = ScaleRule::kGiven}, true},
    {"tensorwise, amax before rounding", DType::kBF16, {.rule = ScaleRule::kCurrent}, true},
    {"tensorwise", DType::kBF16, {.rule = ScaleRule::kCurrent}, false},
    {"blockwise", DType::kBF16, {.rule = ScaleRule::kCurrentPow2, .blocking = Blocking::kRow, .block = 128}, false},
    {"mxfp8", DType::kBF16, {.rule = ScaleRule::kE8M0, .blocking = Blocking::kRow, .block = 32}, false},
};

// A producer writes `y` [kTokens, kCols].
using Produce = void (*)(Exec& exec, Operand& y);

void norm(Exec& exec, Operand& y) {
  Values x = random_values(DType::kBF16, {kTokens, kCols}, 1), weight = random_values(DType::kBF16, {kCols}, 2);
  Values rstd(DType::kF32, {kTokens});
  rms_norm_fwd(exec, y, rstd, x, weight, 1e-5f);
}
void layer(Exec& exec, Operand& y) {
  Values x = random_values(DType::kBF16, {kTokens, kCols}, 1), weight = random_values(DType::kBF16, {kCols}, 2);
  Values mean(DType::kF32, {kTokens}), rstd(DType::kF32, {kTokens});
  layer_norm_fwd(exec, y, mean, rstd, x, weight, weight, 1e-5f);
}
void swiglu(Exec& exec, Operand& y) { swiglu_fwd(exec, y, random_values(DType::kBF16, {kTokens, 2 * kCols}, 3)); }
void swiglu_gradient(Exec& exec, Operand& dx) {
  Values dy = random_values(DType::kBF16, {kTokens, kCols / 2}, 4),
         x = random_values(DType::kBF16, {kTokens, kCols}, 5);
  swiglu_bwd(exec, dx, dy, x);
}
void gelu(Exec& exec, Operand& y) { gelu_fwd(exec, y, random_values(DType::kBF16, {kTokens, kCols}, 6)); }
void gelu_gradient(Exec& exec, Operand& dx) {
  Values dy = random_values(DType::kBF16, {kTokens, kCols}, 7), x = random_values(DType::kBF16, {kTokens, kCols}, 8);
  gelu_bwd(exec, dx, dy, x);
}

TEST(ProducerForms, EqualCastsOfTheWrittenValue) {
  for (Produce produce : {norm, layer, swiglu, swiglu_gradient, gelu, gelu_gradient})
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.name);
      Exec exec;
      Values high(c.high, {kTokens, kCols}), exact(DType::kF32, {kTokens, kCols});
      float producer_amax = 0, scale = 37, amax[4] = {};
      Quantized rowwise, columnwise, want_rowwise, want_columnwise;
      Arena arena;
      arena.build([&](Arena& a) {
        rowwise = a.quantized("a", c.format, kTokens, kCols);
        want_rowwise = a.quantized("b", c.format, kTokens, kCols);
        columnwise = a.quantized("c", c.format, kCols, kTokens);
        want_columnwise = a.quantized("d", c.format, kCols, kTokens);
      });
      int i = 0;
      for (Quantized* q : {&rowwise, &columnwise, &want_rowwise, &want_columnwise})
        q->amax = &amax[i++], q->scale = &scale;
      Operand y{.high = high.tensor(),
                .rowwise = rowwise,
                .columnwise = columnwise,
                .producer_amax = c.producer_amax ? &producer_amax : nullptr};
      produce(exec, y);

      Operand plain{.high = exact.tensor(), .rowwise = {}, .columnwise = {}};
      produce(exec, plain);
      EXPECT_TRUE(high == Values(c.high, {kTokens, kCols}, exact.floats()));
      float largest = 0;
      for (float v : exact.floats()) largest = std::max(largest, std::fabs(v));
      if (c.producer_amax) {
        EXPECT_EQ(producer_amax, largest);
        EXPECT_EQ(amax[0], largest);
      }
      const float* given = c.producer_amax ? &largest : nullptr;
      quantize_form(exec, want_rowwise, false, high, 0, given);
      quantize_form(exec, want_columnwise, true, high, 0, given);
      for (auto [got, want] : {std::pair{&rowwise, &want_rowwise}, {&columnwise, &want_columnwise}}) {
        EXPECT_EQ(std::memcmp(got->data.data, want->data.data, static_cast<size_t>(got->data.bytes())), 0);
        EXPECT_EQ(std::memcmp(got->scale_inv.data, want->scale_inv.data, static_cast<size_t>(got->scale_inv.bytes())),
                  0);
        const auto* codes = static_cast<const uint8_t*>(got->data.data);
        EXPECT_GT(std::count_if(codes, codes + got->data.bytes(), [](uint8_t code) { return (code & 0x7f) != 0; }),
                  got->data.bytes() / 2);
      }
    }
}

}  // namespace
}  // namespace mantissa
