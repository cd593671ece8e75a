// From FP32 sums to c.
#pragma once

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/tile.h"

namespace mantissa {

// c[m0.., n0..] = alpha * sums + bias + c_old, in FP32, rounded once; sums [rows, cols], `stride` floats between rows.
// With GemmScaling::kBlock the sum (and bias) is rounded to c's dtype before c_old is added (docs/numerics.md,
// "Emulation"). scale_sums: y = fma(fl(sums * s1), s2, y), s1 the scale of the side with one row a block (a's if both
// have one), for the block of K at `k`.
MANTISSA_CPU_KERNEL(void store_block(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols,
                                     const float* sums, int64_t stride);
                    void scale_sums(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, int64_t k,
                                    const float* sums, int64_t stride, float* y, int64_t y_stride, bool first);)

}  // namespace mantissa
