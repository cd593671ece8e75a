// Tiles by the tensor memory accelerator (PTX ISA, cp.async.bulk.tensor): one thread asks for boxes of 64 columns of a
// head by rows of tokens, zeros beyond the head and the last token, and a barrier in shared memory counts their bytes.
#pragma once

#include <cuda.h>

#include "ops/cuda/attention/tile.cuh"

namespace mantissa::cuda {

// Of x[T, heads D], boxes of `rows` tokens, laid as hopper_warpgroup.cuh's panels; x lies at a multiple of 16 bytes, D
// is one of 8. The map goes to a kernel by value, so a captured graph keeps it.
CUtensorMap boxes_of(const Bf16* x, int64_t tokens, int64_t heads, int64_t head_dim, int rows);

// `count` barriers from `barriers` on, one arrival each; before a __syncthreads().
__device__ __forceinline__ void make_barriers(uint32_t barriers, int count) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < count; ++i) make_barrier(barriers + 8 * i, 1);
  publish_barriers();
}
// A box of 64 columns from `column` on.
__device__ __forceinline__ void load_box(uint32_t to, const CUtensorMap& map, int column, int head, int token,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(head), "r"(token)
      : "memory");
}
// A tile of kRows tokens from `token` on, kWidth columns wide.
template <int kRows, int kWidth>
__device__ __forceinline__ void load_tile(uint32_t to, const CUtensorMap& map, int head, int token, uint32_t barrier) {
#pragma unroll
  for (int panel = 0; panel < kWidth / 64; ++panel)
    load_box(to + panel * kRows * 128, map, panel * 64, head, token, barrier);
}

}  // namespace mantissa::cuda
