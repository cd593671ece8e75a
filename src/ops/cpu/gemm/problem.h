// A matrix product as the CPU kernels see it: plain data, checked and normalised by ops/gemm_problem.cpp.
#pragma once

#include <cstdint>

#include "numerics/inline.h"
#include "tensor/dtype.h"

namespace mantissa {

// What panels hold and the micro-kernel multiplies. Accumulation is FP32 in both.
enum class GemmMath : uint8_t { kF32, kBF16 };

// Where the scales of quantized sides enter.
enum class GemmScaling : uint8_t {
  kNone,    // plain sides, or per-tensor scales folded into alpha
  kInside,  // panels hold code x block scale: powers of two, or E4M3 scales of E2M1 codes; exact
  kBlock,   // panels hold codes; FP32 scales enter after each 128 of K
};

// One side in memory, [outer, k] or, transposed, [k, outer]; "row" and "col" below are those of the data as stored.
struct GemmOperand {
  const void* data;
  DType dtype;  // F32, BF16, or codes
  bool transposed;
  int64_t outer, k;
  int64_t stride;        // elements between rows
  const void* scales;    // block scales, null without
  DType scale_dtype;     // F32, E8M0 or E4M3
  int scale_row_bits;    // log2 of the data rows that share a scale: of 1 or of the block
  int scale_col_bits;    // log2 of the data columns that share a scale
  int64_t scale_stride;  // scales of a row of blocks

  // The scale of outer row `o` at position `at` along K.
  MANTISSA_HD int64_t scale_index(int64_t o, int64_t at) const {
    const int64_t row = transposed ? at : o, col = transposed ? o : at;
    return (row >> scale_row_bits) * scale_stride + (col >> scale_col_bits);
  }
};

// c[M,N] = alpha * a · bᵀ + bias + c_old if `accumulate`.
struct GemmProblem {
  GemmOperand a, b;
  GemmMath math;
  GemmScaling scaling;
  float alpha;
  int64_t m, n, k;
  void* c;
  DType c_dtype;
  const void* bias;  // [N] or null
  DType bias_dtype;
  bool accumulate;
};

}  // namespace mantissa
