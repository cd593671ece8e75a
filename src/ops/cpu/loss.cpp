#include "ops/cpu/loss.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vec_math.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kTile = 2048;  // logits a step of the running maximum: a tile stays in the L1 cache

template <class T>
MANTISSA_HD float tile_max(const T* x, int64_t n) {
  float largest = -__builtin_inff();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const float v = to_float(x[i]);
    largest = v > largest ? v : largest;
  }
  return largest;
}

// e = exp(x - largest); returns its sum.
template <class T>
MANTISSA_HD float tile_exp(float* e, const T* x, float largest, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    e[i] = vec_exp(to_float(x[i]) - largest);
    sum += e[i];
  }
  return sum;
}

template <class T>
MANTISSA_HD void scale_row(T* x, const float* e, float scale, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = from_float<T>(e[i] * scale);
}

template <class T>
void cross_entropy_rows(const CrossEntropy& a) {
  const int64_t n = a.vocab;
  parallel_for(a.rows, row_grain(a.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* x = static_cast<T*>(a.logits) + r * a.cols;
      const int32_t label = a.labels[r];
      a.loss[r] = a.lse[r] = 0;
      if (a.state)
        for (int64_t i = label == kIgnoredLabel ? 0 : n; i < a.cols; ++i) x[i] = from_float<T>(0.0f);
      if (label == kIgnoredLabel) continue;
      alignas(64) float e[kTile];
      float largest = -__builtin_inff();
      double sum = 0;
      for (int64_t i = 0; i < n; i += kTile) {
        const int64_t width = n - i < kTile ? n - i : kTile;
        const float tile = tile_max(x + i, width);
        if (tile > largest) {
          sum *= vec_exp(largest - tile);
          largest = tile;
        }
        sum += tile_exp(e, x + i, largest, width);
      }
      const double log_sum = __builtin_log(sum), target = to_float(x[label]);
      const double lse = largest + log_sum;
      a.loss[r] = log_sum + (largest - target);
      a.lse[r] = lse;
      if (!a.state) continue;
      // d(loss + z lse²)/dx_j = p_j (1 + 2 z lse) - [j = label].
      const double weight = a.state->grad_scale * (1.0 + 2.0 * static_cast<double>(a.state->z_weight) * lse);
      const auto scale = static_cast<float>(weight / sum);
      const float at_label = vec_exp(to_float(x[label]) - largest) * scale - a.state->grad_scale;
      for (int64_t i = 0; i < n; i += kTile) {
        const int64_t width = n - i < kTile ? n - i : kTile;
        if (n > kTile) tile_exp(e, x + i, largest, width);  // a row of one tile still has them
        scale_row(x + i, e, scale, width);
      }
      x[label] = from_float<T>(at_label);
    }
  });
}

}  // namespace

void cross_entropy(const CrossEntropy& a) {
  with_float(a.type, [&](auto t) { cross_entropy_rows<typename decltype(t)::type>(a); });
}

}  // namespace mantissa::MANTISSA_ISA_NS
