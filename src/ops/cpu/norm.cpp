#include "ops/cpu/norm.h"

#include "base/parallel.h"
#include "ops/cpu/reduce.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

// h = x + r, rounded to X.
template <class X>
MANTISSA_HD void add_row(X* h, const X* x, const X* r, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) h[i] = from_float<X>(to_float(x[i]) + to_float(r[i]));
}

template <class X>
MANTISSA_HD float row_sum(const X* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += to_float(x[i]);
  return sum;
}

// Sum of (x - mean)².
template <class X>
MANTISSA_HD float row_squares(const X* x, float mean, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float v = to_float(x[i]) - mean;
    sum += v * v;
  }
  return sum;
}

// y = weight (rstd (x - mean)) + bias; returns amax of the FP32 values, NaN left out.
template <bool kLayerNorm, class X, class Y>
MANTISSA_HD float scale_row(Y* y, const X* x, const X* weight, const X* bias, float mean, float rstd, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    float v;
    if constexpr (kLayerNorm)
      v = to_float(weight[i]) * (rstd * (to_float(x[i]) - mean)) + to_float(bias[i]);
    else
      v = to_float(weight[i]) * (rstd * to_float(x[i]));
    y[i] = from_float<Y>(v);
    const float magnitude = abs_of(v);
    amax = magnitude > amax ? magnitude : amax;
  }
  return amax;
}

template <bool kLayerNorm, class X, class Y>
void norm_fwd(const NormFwd& a) {
  const int64_t n = a.cols;
  const auto* weight = static_cast<const X*>(a.weight);
  const auto* bias = static_cast<const X*>(a.bias);
  if (a.amax) *a.amax = 0;
  parallel_for(a.rows, row_grain(n), [&](int64_t begin, int64_t end) {
    float amax = 0;
    for (int64_t t = begin; t < end; ++t) {
      const X* x = static_cast<const X*>(a.x) + t * n;
      if (a.r) {
        X* h = static_cast<X*>(a.h) + t * n;
        add_row(h, x, static_cast<const X*>(a.r) + t * n, n);
        x = h;
      }
      const float count = static_cast<float>(n);
      const float mean = kLayerNorm ? row_sum(x, n) / count : 0;
      const float rstd = 1.0f / __builtin_sqrtf(row_squares(x, mean, n) / count + a.eps);
      if constexpr (kLayerNorm) a.mean[t] = mean;
      a.rstd[t] = rstd;
      const float row = scale_row<kLayerNorm>(static_cast<Y*>(a.y) + t * n, x, weight, bias, mean, rstd, n);
      amax = row > amax ? row : amax;
    }
    if (a.amax) raise_amax(a.amax, amax);
  });
}

// One row: dx, and the row's terms of dweight and dbias added to their block's partial sums. With g = weight dy and
// xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)); RMSNorm has no mean(g).
template <bool kLayerNorm, class T>
MANTISSA_HD void norm_bwd_row(T* dx, float* dweight, float* dbias, const T* dy, const T* x, const T* weight, float mean,
                              float rstd, const T* dresidual, int64_t n) {
  float sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t i = 0; i < n; ++i) {
    const float d = to_float(dy[i]), xhat = (to_float(x[i]) - mean) * rstd, g = to_float(weight[i]) * d;
    dweight[i] += d * xhat;
    if constexpr (kLayerNorm) {
      dbias[i] += d;
      sum_g += g;
    }
    sum_gx += g * xhat;
  }
  const float mean_g = sum_g / static_cast<float>(n), mean_gx = sum_gx / static_cast<float>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float xhat = (to_float(x[i]) - mean) * rstd, g = to_float(weight[i]) * to_float(dy[i]);
    float v = rstd * (g - mean_g - xhat * mean_gx);
    if (dresidual) v += to_float(dresidual[i]);
    dx[i] = from_float<T>(v);
  }
}

template <bool kLayerNorm, class T>
void norm_bwd(const NormBwd& a) {
  const int64_t n = a.cols, stride = kLayerNorm ? 2 * n : n;
  const auto* weight = static_cast<const T*>(a.weight);
  parallel_for(a.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* dweight = a.partial + b * stride;
      for (int64_t i = 0; i < stride; ++i) dweight[i] = 0;
      const int64_t last = (b + 1) * a.block_rows < a.rows ? (b + 1) * a.block_rows : a.rows;
      for (int64_t t = b * a.block_rows; t < last; ++t) {
        const T* dresidual = a.dresidual ? static_cast<const T*>(a.dresidual) + t * n : nullptr;
        norm_bwd_row<kLayerNorm>(static_cast<T*>(a.dx) + t * n, dweight, dweight + n,
                                 static_cast<const T*>(a.dy) + t * n, static_cast<const T*>(a.x) + t * n, weight,
                                 kLayerNorm ? a.mean[t] : 0.0f, a.rstd[t], dresidual, n);
      }
    }
  });
  with_float(a.weight_grad_type, [&](auto grad) {
    using G = typename decltype(grad)::type;
    add_partials(static_cast<G*>(a.dweight), a.partial, a.blocks, stride, n);
    if constexpr (kLayerNorm) add_partials(static_cast<G*>(a.dbias), a.partial + n, a.blocks, stride, n);
  });
}

template <bool kLayerNorm>
void dispatch_fwd(const NormFwd& a) {
  with_float(a.x_type, [&](auto x) {
    with_float(a.y_type,
               [&](auto y) { norm_fwd<kLayerNorm, typename decltype(x)::type, typename decltype(y)::type>(a); });
  });
}

}  // namespace

void rms_norm_fwd(const NormFwd& a) { dispatch_fwd<false>(a); }
void layer_norm_fwd(const NormFwd& a) { dispatch_fwd<true>(a); }

void rms_norm_bwd(const NormBwd& a) {
  with_float(a.type, [&](auto t) { norm_bwd<false, typename decltype(t)::type>(a); });
}
void layer_norm_bwd(const NormBwd& a) {
  with_float(a.type, [&](auto t) { norm_bwd<true, typename decltype(t)::type>(a); });
}

}  // namespace mantissa::MANTISSA_ISA_NS
