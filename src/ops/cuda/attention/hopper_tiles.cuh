// Tiles of 128 tokens that begin with their documents, the longest document first: blocks that take the next tile of
// the list as they become free end at nearly the same time. And what the kernels that walk the list share.
#pragma once

#include "ops/cuda/attention/tile.cuh"

namespace mantissa::cuda {

constexpr int kTile = 128;

// Tokens [first, first + 128) of a document [begin, end).
struct alignas(16) TokenTile {
  int first, begin, end, document;
};

struct TileList {
  TokenTile* tiles;
  int* counts;  // tiles; pieces of work handed out beyond the first of each block
};

// In the scratch that starts there: (a.tokens / 128 + a.segments) tiles and the counts.
inline TileList tile_list_at(void* scratch, const AttentionView& a) {
  TokenTile* const tiles = static_cast<TokenTile*>(scratch);
  return {tiles, reinterpret_cast<int*>(tiles + a.tokens / kTile + a.segments)};
}

// By one block. kBackwards: the last tile of a document first.
template <bool kBackwards>
__device__ void list_tiles(const TileList& list, const AttentionView& a) {
  for (int d = static_cast<int>(threadIdx.x); d < a.segments; d += static_cast<int>(blockDim.x)) {
    const int begin = a.offsets[d], end = a.offsets[d + 1], own = (end - begin + kTile - 1) / kTile;
    int to = 0, all = 0, last = a.offsets[0];
#pragma unroll 8
    for (int k = 0; k < a.segments; ++k) {
      const int next = a.offsets[k + 1], length = next - last, tiles = (length + kTile - 1) / kTile;
      if (length > end - begin || (length == end - begin && k < d)) to += tiles;
      all += tiles;
      last = next;
    }
    for (int i = 0; i < own; ++i) list.tiles[to + (kBackwards ? own - 1 - i : i)] = {begin + i * kTile, begin, end, d};
    if (d == 0) list.counts[0] = all, list.counts[1] = 0;
  }
}

// A warp's 16 rows of a result, 128 columns wide, times factor[row / 8], to rows [first, end) of global memory, through
// kWayOut elements of shared memory of its own. Chunks of 16 bytes are exchanged there by row % 8, for the banks.
constexpr int kWayOut = 16 * 128;
__device__ __forceinline__ void store_way_out(const float (&c)[16][4], const float (&factor)[2], Bf16* own, Bf16* to,
                                              int64_t stride, int first, int end, int dim) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane / 4;
      *reinterpret_cast<uint32_t*>(own + row * 128 + (n ^ (row % 8)) * 8 + lane % 4 * 2) =
          pack(c[n][2 * half] * factor[half], c[n][2 * half + 1] * factor[half]);
    }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = i * 2 + lane / 16, chunk = lane % 16;
    if (first + row < end && chunk * 8 < dim)
      *reinterpret_cast<uint4*>(to + (first + row) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(own + row * 128 + (chunk ^ (row % 8)) * 8);
  }
}

}  // namespace mantissa::cuda
