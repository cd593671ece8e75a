#include "tests/ops/gemm_case.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/cpu/gemm/decode.h"

namespace mantissa::test {
namespace {

float c_old(int64_t i) { return static_cast<float>(i % 13 - 6) * 0.25f; }
float bias_of(int64_t n) { return static_cast<float>(n % 7 - 3) * 0.5f; }

GemmDesc desc_of(const Product& p, Tensor c, ConstTensor bias) {
  return {.a = p.a.view, .b = p.b.view, .c = c, .bias = p.bias ? bias : ConstTensor{}, .beta = p.beta};
}

}  // namespace

Side plain_side(std::mt19937& random, DType dtype, int64_t outer, int64_t k, bool transposed) {
  std::normal_distribution<float> normal;
  Side side;
  side.k = k;
  side.values.resize(static_cast<size_t>(outer * k));
  side.data.resize(static_cast<size_t>(bytes_of(dtype, outer * k)));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < k; ++i) {
      const float x = normal(random);
      const int64_t at = transposed ? i * outer + o : o * k + i;
      if (dtype == DType::kF32)
        reinterpret_cast<float*>(side.data.data())[at] = x;
      else
        reinterpret_cast<bf16*>(side.data.data())[at] = to_bf16(x);
      side.values[static_cast<size_t>(o * k + i)] = dtype == DType::kF32 ? x : to_float(to_bf16(x));
    }
  const Shape shape = transposed ? Shape{k, outer} : Shape{outer, k};
  side.view = GemmSide::plain({side.data.data(), dtype, shape}, transposed);
  return side;
}

Side quantized_side(std::mt19937& random, const QuantFormat& format, int64_t outer, int64_t k, bool transposed,
                    int shift) {
  const int64_t rows = transposed ? k : outer, cols = transposed ? outer : k;
  Side side;
  side.k = k;
  side.data.resize(static_cast<size_t>(bytes_of(format.element, rows * cols)));
  std::uniform_int_distribution<int> byte(0, 255);
  for (uint8_t& code : side.data) {
    do code = static_cast<uint8_t>(byte(random));
    while (format.element != DType::kE2M1 && !std::isfinite(element_at(&code, format.element, 0)));
  }
  const int64_t scale_cols = format.blocking == Blocking::kTensor ? cols : format.block;
  const int64_t scale_rows = format.blocking == Blocking::kTensor ? rows
                             : format.blocking == Blocking::kRow  ? 1
                                                                  : format.block;
  const Shape grid =
      format.blocking == Blocking::kTensor ? Shape{1} : Shape{ceil_div(rows, scale_rows), ceil_div(cols, scale_cols)};
  const DType scale_dtype = format.rule == ScaleRule::kE8M0    ? DType::kE8M0
                            : format.rule == ScaleRule::kNvfp4 ? DType::kE4M3
                                                               : DType::kF32;
  side.scales.resize(static_cast<size_t>(bytes_of(scale_dtype, grid.count())));
  for (int64_t i = 0; i < grid.count(); ++i) {
    const int exponent = static_cast<int>(random() % 7) - 3 + shift;
    if (scale_dtype == DType::kE8M0)
      side.scales[i] = static_cast<uint8_t>(127 + exponent);
    else if (scale_dtype == DType::kE4M3)
      side.scales[i] = static_cast<uint8_t>(random() % 127);
    else
      reinterpret_cast<float*>(side.scales.data())[i] = std::ldexp(
          format.rule == ScaleRule::kCurrentPow2 ? 1.0f : 1.0f + 0.1f * static_cast<float>(random() % 8), exponent);
  }
  side.codes = std::make_unique<Quantized>();
  side.amax = std::make_unique<float>(1.5f);
  *side.codes = {format,
                 {side.data.data(), format.element, {rows, cols}},
                 {side.scales.data(), scale_dtype, grid},
                 side.amax.get(),
                 nullptr};
  side.view = GemmSide::quantized(*side.codes, transposed);
  side.values.resize(static_cast<size_t>(outer * k));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < k; ++i) {
      const int64_t row = transposed ? i : o, col = transposed ? o : i;
      const double scale =
          format.blocking == Blocking::kTensor
              ? 1
              : element_at(side.scales.data(), scale_dtype, row / scale_rows * grid[1] + col / scale_cols);
      side.values[static_cast<size_t>(o * k + i)] =
          element_at(side.data.data(), format.element, row * cols + col) * scale;
    }
  return side;
}

std::vector<float> run_product(Exec& exec, const GemmCandidate& candidate, const Product& p) {
  std::vector<float> wide(static_cast<size_t>(p.m * p.n)), bias(static_cast<size_t>(p.n));
  std::vector<bf16> narrow(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = c_old(static_cast<int64_t>(i)), narrow[i] = to_bf16(wide[i]);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = bias_of(static_cast<int64_t>(i));
  const bool f32 = p.c_dtype == DType::kF32;
  const Tensor c{f32 ? static_cast<void*>(wide.data()) : narrow.data(), p.c_dtype, {p.m, p.n}};
  candidate.run(exec, candidate.engine, normalise(desc_of(p, c, {bias.data(), DType::kF32, {p.n}})));
  if (!f32)
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = to_float(narrow[i]);
  return wide;
}

Exact exact_sums(const Product& p) {
  double alpha = 1;
  if (const Quantized* a = p.a.view.scale) {
    const Quantized* b = p.b.view.scale;
    if (a->format.blocking == Blocking::kTensor)
      alpha = static_cast<double>(a->scale_inv.as<float>()[0]) * b->scale_inv.as<float>()[0];
    if (a->format.rule == ScaleRule::kNvfp4) alpha = static_cast<double>(*a->amax) * *b->amax / (2688.0 * 2688.0);
  }
  Exact exact{std::vector<double>(static_cast<size_t>(p.m * p.n)), std::vector<double>(static_cast<size_t>(p.m * p.n))};
  for (int64_t m = 0; m < p.m; ++m)
    for (int64_t n = 0; n < p.n; ++n) {
      const double* a = p.a.values.data() + m * p.k;
      const double* b = p.b.values.data() + n * p.k;
      double sum = 0, size = 0;
#pragma omp simd reduction(+ : sum, size)
      for (int64_t k = 0; k < p.k; ++k) sum += a[k] * b[k], size += std::fabs(a[k] * b[k]);
      exact.sum[static_cast<size_t>(m * p.n + n)] = alpha * sum;
      exact.size[static_cast<size_t>(m * p.n + n)] = alpha * size;
    }
  return exact;
}

double worst_error(const Product& p, const Exact& exact, const std::vector<float>& c) {
  const double unit = p.c_dtype == DType::kF32 ? 0x1p-24 : 0x1p-8;  // a rounding to c is off by at most this share
  double worst = 0;
  for (int64_t m = 0; m < p.m; ++m)
    for (int64_t n = 0; n < p.n; ++n) {
      const size_t at = static_cast<size_t>(m * p.n + n);
      const double bias = p.bias ? bias_of(n) : 0, old = p.beta != 0 ? c_old(m * p.n + n) : 0;
      const double first = exact.sum[at] + bias, want = first + old;
      const double bound = static_cast<double>(p.k + 8) * 0x1p-24 * exact.size[at] +
                           unit * (std::fabs(want) + std::fabs(first)) + 0x1p-22 * (std::fabs(bias) + std::fabs(old)) +
                           0x1p-140;
      const double error = std::fabs(c[at] - want);
      worst = std::max(worst, std::isfinite(error) ? error / bound : 1e30);
    }
  return worst;
}

std::vector<const GemmCandidate*> candidates_for(const Exec& exec, const Product& p) {
  std::vector<float> c(static_cast<size_t>(p.m * p.n)), bias(static_cast<size_t>(p.n));
  const GemmProblem problem =
      normalise(desc_of(p, {c.data(), p.c_dtype, {p.m, p.n}}, {bias.data(), DType::kF32, {p.n}}));
  std::vector<const GemmCandidate*> found;
  for (const GemmCandidate& candidate : gemm_candidates())
    if (!*candidate.missing(exec) && !*candidate.refuses(problem)) found.push_back(&candidate);
  return found;
}

}  // namespace mantissa::test
