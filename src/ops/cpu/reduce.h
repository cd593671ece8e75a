// Column sums in a fixed order: partial rows of row blocks, then their sum in block order.
#pragma once

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {

// sum[N] += the rows partial[b * stride + N] of `blocks` blocks, added in FP32 in block order and rounded once.
template <class T>
void add_partials(T* sum, const float* partial, int64_t blocks, int64_t stride, int64_t n) {
  constexpr int64_t kTile = 64, kGrain = 1024;
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i0 = begin; i0 < end; i0 += kTile) {
      const int64_t width = end - i0 < kTile ? end - i0 : kTile;
      float total[kTile] = {};
      for (int64_t b = 0; b < blocks; ++b) {
        const float* row = partial + b * stride + i0;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) total[i] += row[i];
      }
      for (int64_t i = 0; i < width; ++i) sum[i0 + i] = from_float<T>(to_float(sum[i0 + i]) + total[i]);
    }
  });
}

}  // namespace mantissa::MANTISSA_ISA_NS
