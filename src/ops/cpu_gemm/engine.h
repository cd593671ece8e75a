// gemm() on one instruction set: blocking, packing and threads around a TileKernel.
#pragma once

#include "ops/cpu/gemm/tile.h"

namespace mantissa {

struct GemmEngine {
  TileKernel tiles;
  void (*store)(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, const float* sums, int64_t stride);
  void (*scale_sums)(const GemmProblem& p, int64_t m0, int64_t n0, int rows, int cols, int64_t k, const float* sums,
                     int64_t stride, float* y, int64_t y_stride, bool first);
};

// Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008: right panels are packed once,
// shared by all threads; each thread packs blocks of left panels that stay in its second-level cache and walks over K
// in chunks whose right panels stay in the first. Every element of c is summed along K in order, whatever the blocking.
void run_gemm(Exec& exec, const GemmEngine& engine, const GemmProblem& problem);

}  // namespace mantissa
