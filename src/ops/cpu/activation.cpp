#include "ops/cpu/activation.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vec_math.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

MANTISSA_HD float larger(float a, float b) { return b > a ? b : a; }

// Runs row(t), which returns the amax of its FP32 values, on all rows; NaN is left out of the amax.
template <class Row>
MANTISSA_HD void for_rows(int64_t rows, int64_t cols, float* amax, Row&& row) {
  if (amax) *amax = 0;
  parallel_for(rows, row_grain(cols), [&](int64_t begin, int64_t end) {
    float largest = 0;
    for (int64_t t = begin; t < end; ++t) largest = larger(largest, row(t));
    if (amax) raise_amax(amax, largest);
  });
}

template <class X, class Y>
MANTISSA_HD float swiglu_row(Y* y, const X* gate, const X* up, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float g = to_float(gate[i]);
    const float v = g * vec_sigmoid(g) * to_float(up[i]);
    y[i] = from_float<Y>(v);
    const float magnitude = abs_of(v);
    amax = magnitude > amax ? magnitude : amax;
  }
  return amax;
}

// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g).
template <class X, class D>
MANTISSA_HD float swiglu_bwd_row(D* dgate, D* dup, const X* dy, const X* gate, const X* up, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float g = to_float(gate[i]), d = to_float(dy[i]), s = vec_sigmoid(g);
    const float from_gate = d * to_float(up[i]) * (s * (1.0f + g * (1.0f - s))), from_up = d * (g * s);
    dgate[i] = from_float<D>(from_gate);
    dup[i] = from_float<D>(from_up);
    const float a = abs_of(from_gate), b = abs_of(from_up);
    amax = a > amax ? a : amax;
    amax = b > amax ? b : amax;
  }
  return amax;
}

// (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x³): no cancellation where x is negative.
MANTISSA_HD float gelu_gate(float x) { return vec_sigmoid(2.0f * kGeluScale * (x + kGeluCubic * x * x * x)); }

template <class X, class Y>
MANTISSA_HD float gelu_row(Y* y, const X* x, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float u = to_float(x[i]), v = u * gelu_gate(u);
    y[i] = from_float<Y>(v);
    const float magnitude = abs_of(v);
    amax = magnitude > amax ? magnitude : amax;
  }
  return amax;
}

template <class X, class D>
MANTISSA_HD float gelu_bwd_row(D* dx, const X* dy, const X* x, int64_t n) {
  float amax = 0;
#pragma omp simd reduction(max : amax)
  for (int64_t i = 0; i < n; ++i) {
    const float u = to_float(x[i]), s = gelu_gate(u);
    const float slope = 2.0f * kGeluScale * (1.0f + 3.0f * kGeluCubic * u * u);
    const float v = to_float(dy[i]) * (s + u * (s * (1.0f - s)) * slope);
    dx[i] = from_float<D>(v);
    const float magnitude = abs_of(v);
    amax = magnitude > amax ? magnitude : amax;
  }
  return amax;
}

// Calls body(Type<X>, Type<Y>) for the two dtypes.
template <class Body>
MANTISSA_HD void with_floats(DType x, DType y, Body&& body) {
  with_float(x, [&](auto x_type) { with_float(y, [&](auto y_type) { body(x_type, y_type); }); });
}

}  // namespace

void swiglu_fwd(const ActivationFwd& a) {
  with_floats(a.x_type, a.y_type, [&](auto x_type, auto y_type) {
    const auto* x = static_cast<const typename decltype(x_type)::type*>(a.x);
    auto* y = static_cast<typename decltype(y_type)::type*>(a.y);
    const int64_t n = a.cols;
    for_rows(a.rows, n, a.amax, [=](int64_t t) { return swiglu_row(y + t * n, x + t * 2 * n, x + t * 2 * n + n, n); });
  });
}

void swiglu_bwd(const ActivationBwd& a) {
  with_floats(a.x_type, a.dx_type, [&](auto x_type, auto dx_type) {
    using X = typename decltype(x_type)::type;
    const auto *x = static_cast<const X*>(a.x), *dy = static_cast<const X*>(a.dy);
    auto* dx = static_cast<typename decltype(dx_type)::type*>(a.dx);
    const int64_t n = a.cols;
    for_rows(a.rows, n, a.amax, [=](int64_t t) {
      return swiglu_bwd_row(dx + t * 2 * n, dx + t * 2 * n + n, dy + t * n, x + t * 2 * n, x + t * 2 * n + n, n);
    });
  });
}

void gelu_fwd(const ActivationFwd& a) {
  with_floats(a.x_type, a.y_type, [&](auto x_type, auto y_type) {
    const auto* x = static_cast<const typename decltype(x_type)::type*>(a.x);
    auto* y = static_cast<typename decltype(y_type)::type*>(a.y);
    const int64_t n = a.cols;
    for_rows(a.rows, n, a.amax, [=](int64_t t) { return gelu_row(y + t * n, x + t * n, n); });
  });
}

void gelu_bwd(const ActivationBwd& a) {
  with_floats(a.x_type, a.dx_type, [&](auto x_type, auto dx_type) {
    using X = typename decltype(x_type)::type;
    const auto *x = static_cast<const X*>(a.x), *dy = static_cast<const X*>(a.dy);
    auto* dx = static_cast<typename decltype(dx_type)::type*>(a.dx);
    const int64_t n = a.cols;
    for_rows(a.rows, n, a.amax, [=](int64_t t) { return gelu_bwd_row(dx + t * n, dy + t * n, x + t * n, n); });
  });
}

}  // namespace mantissa::MANTISSA_ISA_NS
