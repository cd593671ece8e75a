// CPU kernels of elementwise.h.
#pragma once

#include "ops/cpu/dispatch.h"

namespace mantissa {

struct AddArgs {
  int64_t n;
  DType y_type, a_type, b_type;
  void* y;
  const void *a, *b;
};

struct CastArgs {
  int64_t n;
  DType y_type, x_type;
  void* y;
  const void* x;
};

struct BiasBwd {
  int64_t rows, cols;
  int64_t block_rows, blocks;
  DType db_type, dy_type;
  void* db;        // [N]
  const void* dy;  // [T,N]
  float* partial;  // [blocks, N] scratch
};

// Reductions over fixed blocks of n elements; one result a block.
struct BlockScan {
  int64_t n, block;
  DType type;
  const void* x;
  double* squares;  // [blocks] sum of squares
  int64_t* index;   // [blocks] first non-finite element, or -1
};

MANTISSA_CPU_KERNEL(void add(const AddArgs& a); void cast(const CastArgs& a); void bias_bwd(const BiasBwd& a);
                    void sum_of_squares(const BlockScan& a); void first_nonfinite(const BlockScan& a))

}  // namespace mantissa
