// A tile of 128 x 128 values that a block of 256 threads turns into FP8 codes, as they lie and transposed. Thread t
// holds the square of 8 x 8 at rows 8 (t / 16) and columns 8 (t % 16): a row of it is one load of eight, a column of it
// half of a store of sixteen.
#pragma once

#include <cuda_fp8.h>

#include "numerics/block_scale.h"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/quantize.h"

namespace mantissa::cuda {

struct Fp8Tile {
  static constexpr int kSide = 128, kThreads = 256, kSquare = 8, kAcross = kSide / kSquare;

  // Where a square lies; none of it where the matrix ends, whose sides are multiples of 16.
  int64_t row, col;
  bool inside;

  __device__ static Fp8Tile of_block(int64_t rows, int64_t cols) {
    const int64_t row = row0() + down() * kSquare, col = col0() + across() * kSquare;
    return {row, col, row < rows && col < cols};
  }
  // Of the block, whose columns are blockIdx.x and rows blockIdx.y.
  __device__ static int64_t row0() { return int64_t{blockIdx.y} * kSide; }
  __device__ static int64_t col0() { return int64_t{blockIdx.x} * kSide; }
  __device__ static int across() { return static_cast<int>(threadIdx.x) % kAcross; }
  __device__ static int down() { return static_cast<int>(threadIdx.x) / kAcross; }
};

// Codes of eight values, byte i that of x[i] * scale; the conversion rounds to nearest even, clips, and makes NaN 0x7f,
// as numerics/fp8.h does.
template <DType kElement>
__device__ __forceinline__ uint2 encode_eight(const Wide& v, float scale) {
  constexpr __nv_fp8_interpretation_t kKind = kElement == DType::kE4M3 ? __NV_E4M3 : __NV_E5M2;
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 low = make_float2(__fmul_rn(v.x[4 * i], scale), __fmul_rn(v.x[4 * i + 1], scale));
    const float2 high = make_float2(__fmul_rn(v.x[4 * i + 2], scale), __fmul_rn(v.x[4 * i + 3], scale));
    words[i] = __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, kKind) |
               static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, kKind)) << 16;
  }
  return make_uint2(words[0], words[1]);
}

// A square's codes, row by row.
struct Codes {
  uint2 rows[Fp8Tile::kSquare];
};

// to [rows, cols]
__device__ __forceinline__ void store_codes(uint8_t* to, const Fp8Tile& tile, int64_t cols, const Codes& codes) {
  if (!tile.inside) return;
#pragma unroll
  for (int r = 0; r < Fp8Tile::kSquare; ++r)
    *reinterpret_cast<uint2*>(to + (tile.row + r) * cols + tile.col) = codes.rows[r];
}

// Four rows of four bytes to four columns.
__device__ __forceinline__ void turn_four(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t c = __byte_perm(w[2], w[3], 0x5140), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410), w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410), w[3] = __byte_perm(b, d, 0x7632);
}

// Columns of a tile on their way out: 8 codes of 8 rows each, those of one square exchanged among the columns' places
// so that neither writing nor reading meets a bank twice.
struct alignas(16) TurnedTile {
  uint2 codes[Fp8Tile::kSide * Fp8Tile::kAcross];
};

// The tile at (row0, col0) into to[cols, rows], as far as `rows` and `col_end`. Every thread of the block takes part;
// the block must meet before `shared` is used again.
__device__ __forceinline__ void store_turned(uint8_t* to, int64_t row0, int64_t col0, int64_t rows, int64_t col_end,
                                             const Codes& codes, TurnedTile& shared) {
  const int across = Fp8Tile::across(), down = Fp8Tile::down();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t top[4], bottom[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      top[r] = half ? codes.rows[r].y : codes.rows[r].x;
      bottom[r] = half ? codes.rows[r + 4].y : codes.rows[r + 4].x;
    }
    turn_four(top);
    turn_four(bottom);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      shared.codes[(across * Fp8Tile::kSquare + half * 4 + c) * Fp8Tile::kAcross + (down ^ across)] =
          make_uint2(top[c], bottom[c]);
  }
  __syncthreads();
  constexpr int kPairs = Fp8Tile::kAcross / 2;  // stores of sixteen down a tile
#pragma unroll
  for (int i = threadIdx.x; i < Fp8Tile::kSide * kPairs; i += Fp8Tile::kThreads) {
    const int col = i / kPairs, pair = i % kPairs, square = col / Fp8Tile::kSquare;
    const int64_t k = col0 + col, m = row0 + pair * 16;
    if (k >= col_end || m >= rows) continue;
    uint4 v = *reinterpret_cast<const uint4*>(&shared.codes[col * Fp8Tile::kAcross + 2 * (pair ^ (square / 2))]);
    if (square % 2) v = make_uint4(v.z, v.w, v.x, v.y);
    *reinterpret_cast<uint4*>(to + k * rows + m) = v;
  }
}

// One scale a tensor, known before the cast, and where the codes go; what fused producers write (null: not wanted).
struct TensorCast {
  uint8_t *rowwise, *columnwise;         // [M,K], [K,M]
  float *row_scale_inv, *col_scale_inv;  // [1] each
  const float* scale;                    // [1]
  float* raised;                         // [1] raised to the amax of the source
};

__device__ __forceinline__ void store_scale_inv(const TensorCast& cast, float scale) {
  if (threadIdx.x != 0 || blockIdx.x != 0 || blockIdx.y != 0) return;
  if (cast.row_scale_inv) *cast.row_scale_inv = 1.0f / scale;
  if (cast.col_scale_inv) *cast.col_scale_inv = 1.0f / scale;
}

// Whether x[M,K]'s forms are what a TensorCast writes: FP8 codes of one format with a given scale, sides of multiples
// of 16, and aligned.
bool takes_tensor_cast(const Operand& x, int64_t m, int64_t k);
TensorCast tensor_cast(const Exec& exec, const Operand& x);
// A block a tile of [m, k].
Grid tile_grid(int64_t m, int64_t k);
// Calls f with std::integral_constant<DType, element>.
template <class F>
void with_fp8(DType element, F&& f) {
  if (element == DType::kE4M3)
    f(std::integral_constant<DType, DType::kE4M3>{});
  else
    f(std::integral_constant<DType, DType::kE5M2>{});
}

}  // namespace mantissa::cuda
