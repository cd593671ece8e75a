#include "ops/cpu/gemm/plain.h"

#include "base/parallel.h"
#include "ops/cpu/gemm/decode.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

// x's outer row r, k in [k0, k0+n), as FP32.
inline void fetch(const GemmOperand& x, int64_t r, int64_t k0, int64_t n, bool scaled, float* out) {
  if (x.dtype == DType::kBF16 && !x.transposed) {
    const bf16* p = static_cast<const bf16*>(x.data) + r * x.k + k0;
    for (int64_t i = 0; i < n; ++i) out[i] = to_float(p[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = x.transposed ? k0 + i : r, col = x.transposed ? r : k0 + i;
    out[i] = element_at(x.data, x.dtype, row * x.cols() + col) * (scaled ? scale_at(x, row, col) : 1.0f);
  }
}

inline float dot(const float* a, const float* b, int64_t n) {
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (int64_t i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

}  // namespace

void gemm_plain(Exec& exec, const GemmProblem& p) {
  const int64_t kb = p.scaling == GemmScaling::kBlock ? 128 : p.k;
  const bool inside = p.scaling == GemmScaling::kInside;
  float* b = reinterpret_cast<float*>(exec.shared_scratch());
  const int64_t strip = exec.shared_scratch_bytes() / 4 / p.k;
  for (int64_t n0 = 0; n0 < p.n; n0 += strip) {
    const int64_t nn = p.n - n0 < strip ? p.n - n0 : strip;
    parallel_for(nn, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) fetch(p.b, n0 + n, 0, p.k, inside, b + n * p.k);
    });
    parallel_for(p.m, 1, [&](int64_t begin, int64_t end) {
      float* a = reinterpret_cast<float*>(exec.thread_scratch(thread_id()));
      for (int64_t m = begin; m < end; ++m) {
        fetch(p.a, m, 0, p.k, inside, a);
        for (int64_t j = 0; j < nn; ++j) {
          const int64_t n = n0 + j;
          float y = 0;
          if (p.scaling == GemmScaling::kBlock) {
            const bool b_first = p.a.scale_rows > 1 && p.b.scale_rows == 1;
            for (int64_t k = 0; k < p.k; k += kb) {
              const float d = dot(a + k, b + j * p.k + k, p.k - k < kb ? p.k - k : kb);
              const float sa = p.a.transposed ? scale_at(p.a, k, m) : scale_at(p.a, m, k);
              const float sb = p.b.transposed ? scale_at(p.b, k, n) : scale_at(p.b, n, k);
              y = __builtin_fmaf(d * (b_first ? sb : sa), b_first ? sa : sb, y);
            }
          } else {
            y = dot(a, b + j * p.k, p.k) * p.alpha;
          }
          const int64_t at = m * p.n + n;
          if (p.bias) y += element_at(p.bias, p.bias_dtype, n);
          if (p.c_dtype == DType::kF32) {
            float* c = static_cast<float*>(p.c) + at;
            *c = p.accumulate ? y + *c : y;
          } else {
            bf16* c = static_cast<bf16*>(p.c) + at;
            if (p.accumulate && p.scaling == GemmScaling::kBlock) y = to_float(to_bf16(y));
            *c = to_bf16(p.accumulate ? y + to_float(*c) : y);
          }
        }
      }
    });
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
