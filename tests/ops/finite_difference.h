// Checks an op's gradient against central differences of its forward, and measures scale-free errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "numerics/bf16.h"

namespace mantissa::test {

// n values of a normal distribution with deviation `scale`; the same for the same seed.
inline std::vector<float> random_normal(int64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(generator);
  return values;
}

inline std::vector<bf16> to_bf16(const std::vector<float>& x) {
  std::vector<bf16> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = mantissa::to_bf16(x[i]);
  return y;
}

inline std::vector<float> to_float(const std::vector<bf16>& x) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = mantissa::to_float(x[i]);
  return y;
}

// |a - b| / |b| in the Euclidean norm, of vectors or spans; NaN in either, or another size, counts as infinite.
template <class A, class B>
double relative_error(const A& a, const B& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  if (!std::isfinite(difference) || !std::isfinite(norm)) return INFINITY;
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

// The gradient of `loss` at x by central differences. `loss(x)` returns sum(w y(x)) in double for a fixed random w (the
// output gradient that backward was given); it must evaluate y from the vector that it is handed.
template <class Loss>
std::vector<double> finite_difference(std::vector<float> x, float step, Loss&& loss) {
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const float centre = x[i];
    // The step that was taken after rounding.
    const float above = centre + step, below = centre - step;
    x[i] = above;
    const double up = loss(x);
    x[i] = below;
    const double down = loss(x);
    x[i] = centre;
    gradient[i] = (up - down) / (static_cast<double>(above) - static_cast<double>(below));
  }
  return gradient;
}

// sum(w y) in double.
template <class Y>
double weighted_sum(const std::vector<float>& w, const std::vector<Y>& y) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += static_cast<double>(w[i]) * static_cast<double>(y[i]);
  return sum;
}

// Bound of relative_error() between an F32 op's gradient and finite_difference() with step 1e-2 on values of order one:
// FP32 rounding of the forward over the step, and the third derivative.
constexpr double kFiniteDifferenceBound = 2e-3;
// Bounds of relative_error() of an op's result against the same op in higher precision.
constexpr double kF32Bound = 1e-5;
constexpr double kBf16Bound = 1e-2;  // half an ulp is 2^-9 of the value

}  // namespace mantissa::test
