#include "ops/cpu/gemm/store.h"

#include "ops/cpu/gemm/decode.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

template <class C, class B, bool biased, bool accumulate, bool round_first>
inline void store_rows(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, const float* sums,
                       int64_t stride) {
  const float alpha = p.alpha;
  const B* bias = biased ? static_cast<const B*>(p.bias) + n0 : nullptr;
  for (int r = 0; r < rows; ++r) {
    C* c = static_cast<C*>(p.c) + (m0 + r) * p.n + n0;
    const float* s = sums + r * stride;
#pragma omp simd
    for (int j = 0; j < cols; ++j) {
      float y = s[j] * alpha;
      if constexpr (biased) y += to_float(bias[j]);
      if constexpr (round_first) y = to_float(from_float<C>(y));
      if constexpr (accumulate) y += to_float(c[j]);
      c[j] = from_float<C>(y);
    }
  }
}

template <class C, class B, bool biased>
inline void store_as(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, const float* sums,
                     int64_t stride) {
  if (!p.accumulate) return store_rows<C, B, biased, false, false>(p, m0, n0, rows, cols, sums, stride);
  if (p.scaling == GemmScaling::kBlock)
    return store_rows<C, B, biased, true, true>(p, m0, n0, rows, cols, sums, stride);
  store_rows<C, B, biased, true, false>(p, m0, n0, rows, cols, sums, stride);
}

template <class C>
inline void store_to(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, const float* sums,
                     int64_t stride) {
  if (!p.bias) return store_as<C, float, false>(p, m0, n0, rows, cols, sums, stride);
  if (p.bias_dtype == DType::kF32) return store_as<C, float, true>(p, m0, n0, rows, cols, sums, stride);
  store_as<C, bf16, true>(p, m0, n0, rows, cols, sums, stride);
}

}  // namespace

void store_block(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, const float* sums, int64_t stride) {
  if (p.c_dtype == DType::kBF16)
    store_to<bf16>(p, m0, n0, rows, cols, sums, stride);
  else
    store_to<float>(p, m0, n0, rows, cols, sums, stride);
}

void scale_sums(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, int64_t k, const float* sums,
                int64_t stride, float* y, int64_t y_stride, bool first) {
  const bool b_first = p.a.scale_row_bits > 0 && p.b.scale_row_bits == 0;
  const float* a_scales = static_cast<const float*>(p.a.scales);
  const float* b_scales = static_cast<const float*>(p.b.scales);
  alignas(64) float sb[kMaxBlockColumns];
  for (int j = 0; j < cols; ++j) sb[j] = b_scales[p.b.scale_index(n0 + j, k)];
  for (int r = 0; r < rows; ++r) {
    const float sa = a_scales[p.a.scale_index(m0 + r, k)];
    const float* s = sums + r * stride;
    float* out = y + r * y_stride;
#pragma omp simd
    for (int j = 0; j < cols; ++j) {
      const float scaled = s[j] * (b_first ? sb[j] : sa);
      out[j] = __builtin_fmaf(scaled, b_first ? sa : sb[j], first ? 0.0f : out[j]);
    }
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
