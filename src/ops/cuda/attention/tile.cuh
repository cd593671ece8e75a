// Tiles of the own attention: copies into shared memory, fragments of mma.m16n8k16 (PTX ISA, "Matrix Fragments"), the
// documents of packed rows. A tile lies row by row, kPad elements behind each row: rows then start in different banks
// for every width that is a multiple of 16.
#pragma once

#include <cstdint>

#include "ops/attention.h"
#include "ops/cuda/common/ptx.cuh"
#include "ops/cuda/common/vec.cuh"

namespace mantissa::cuda {

constexpr int kPad = 8;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// What every kernel of a call is told.
struct AttentionView {
  const int32_t* offsets;  // [S+1]
  int segments, uniform;   // S; Segments::uniform
  int tokens, heads, kv_heads, head_dim;
  int64_t qkv_stride, out_stride;  // elements of a row
  float scale, scale_log2;         // scale * log2(e)

  __device__ int group() const { return heads / kv_heads; }
  __device__ int64_t key_column(int kv) const { return int64_t{heads + kv} * head_dim; }
  __device__ int64_t value_column(int kv) const { return int64_t{heads + kv_heads + kv} * head_dim; }
};

inline AttentionView view_of(const Segments& segments, const HeadLayout& layout, int64_t tokens, float scale) {
  return {.offsets = static_cast<const int32_t*>(segments.offsets.data),
          .segments = static_cast<int>(segments.offsets.dim(0) - 1),
          .uniform = static_cast<int>(segments.uniform),
          .tokens = static_cast<int>(tokens),
          .heads = static_cast<int>(layout.heads),
          .kv_heads = static_cast<int>(layout.kv_heads),
          .head_dim = static_cast<int>(layout.head_dim),
          .qkv_stride = layout.qkv_cols(),
          .out_stride = layout.heads * layout.head_dim,
          .scale = scale,
          .scale_log2 = scale * kLog2E};
}

// The document [begin, end) of a token: the last that begins at or before it, so empty ones do not count.
struct Document {
  int begin, end;
};
__device__ __forceinline__ Document document_of(const AttentionView& a, int token) {
  token = min(token, a.tokens - 1);
  if (a.uniform > 0) {
    const int begin = token - token % a.uniform;
    return {begin, begin + a.uniform};
  }
  int low = 0, high = a.segments;  // offsets[low] <= token < offsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (__ldg(a.offsets + middle) <= token ? low : high) = middle;
  }
  return {__ldg(a.offsets + low), __ldg(a.offsets + high)};
}

// The tile of kRows keys that the nth of `tiles` blocks of a head takes. Where blocks are few, the first tiles of equal
// documents come first, which the most queries see, so that what runs last is short; else as they lie, for the cache.
template <int kRows>
__device__ __forceinline__ int key_tile(const AttentionView& a, int n, int tiles) {
  constexpr unsigned kFew = 512;  // four a multiprocessor
  if (gridDim.x > kFew || a.uniform <= 0 || a.uniform % kRows != 0) return n;
  const int a_document = a.uniform / kRows, documents = tiles / a_document;
  return n % documents * a_document + n / documents;
}

// 16 bytes, or zeros where !valid.
__device__ __forceinline__ void copy16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void copy4(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0));
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Rows [first, first + kRows) of one head into a tile kWidth wide, zeros beyond `rows` and `dim`. `from` is row 0 of
// the head's columns; addresses are multiples of 16 bytes.
template <int kRows, int kWidth, int kThreads>
__device__ __forceinline__ void copy_tile(Bf16* tile, const Bf16* from, int64_t stride, int first, int rows, int dim) {
  constexpr int kChunks = kWidth / 8, kAll = kRows * kChunks;
  const uint32_t to = shared_address(tile);
#pragma unroll
  for (int i = 0; i < (kAll + kThreads - 1) / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    if (kAll % kThreads != 0 && at >= kAll) break;
    const int row = at / kChunks, chunk = at % kChunks;
    const bool valid = first + row < rows && chunk * 8 < dim;
    copy16(to + (row * (kWidth + kPad) + chunk * 8) * 2, from + (valid ? (first + row) * stride + chunk * 8 : 0),
           valid);
  }
}

struct Fragment {
  uint32_t x[4];
};
__device__ __forceinline__ Fragment load_matrix(uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(address));
  return f;
}
__device__ __forceinline__ Fragment load_matrix_transposed(uint32_t address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(f.x[0]), "=r"(f.x[1]), "=r"(f.x[2]), "=r"(f.x[3])
               : "r"(address));
  return f;
}
// c[16,8] += a[16,16] b[16,8].
__device__ __forceinline__ void multiply(float (&c)[4], const Fragment& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

// Where a lane reads in a tile, in bytes from its first element. As A[16,16] the tile's rows are the product's rows. As
// B[16 x 16] its rows are the product's columns ("by row"), or the sum's index ("by sum", transposed on the way).
template <int kWidth>
struct LaneOffsets {
  static constexpr int kRow = (kWidth + kPad) * 2;  // bytes
  uint32_t a, by_row;                               // by sum: as a
  __device__ LaneOffsets() {
    const int lane = threadIdx.x % 32;
    a = (lane % 16) * kRow + (lane / 16) * 16;
    by_row = ((lane / 16) * 8 + lane % 8) * kRow + (lane / 8 % 2) * 16;
  }
};

template <int kM, int kN>
__device__ __forceinline__ void clear(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
}

// c[16 kM, 8 kN] = rows · columnsᵀ over kWidth: both tiles lie along the sum. Addresses are the warp's first row.
template <int kWidth, int kM, int kN>
__device__ __forceinline__ void multiply_rows(float (&c)[kM][kN][4], uint32_t rows, uint32_t columns,
                                              const LaneOffsets<kWidth>& lane) {
  constexpr int kRow = LaneOffsets<kWidth>::kRow;
  clear(c);
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    Fragment a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = load_matrix(rows + lane.a + m * 16 * kRow + k * 32);
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      const Fragment b = load_matrix(columns + lane.by_row + n * 16 * kRow + k * 32);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c[m][2 * n], a[m], b.x[0], b.x[1]);
        multiply(c[m][2 * n + 1], a[m], b.x[2], b.x[3]);
      }
    }
  }
}
// The same with the rows in registers.
template <int kWidth, int kN>
__device__ __forceinline__ void multiply_held(float (&c)[1][kN][4], const Fragment (&a)[kWidth / 16], uint32_t columns,
                                              const LaneOffsets<kWidth>& lane) {
  constexpr int kRow = LaneOffsets<kWidth>::kRow;
  clear(c);
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k)
#pragma unroll
    for (int n = 0; n < kN / 2; ++n) {
      const Fragment b = load_matrix(columns + lane.by_row + n * 16 * kRow + k * 32);
      multiply(c[0][2 * n], a[k], b.x[0], b.x[1]);
      multiply(c[0][2 * n + 1], a[k], b.x[2], b.x[3]);
    }
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Columns [16 k, 16 k + 16) of a product's result as the A of the next.
template <int kN>
__device__ __forceinline__ Fragment as_rows(const float (&c)[kN][4], int k) {
  return {{pack(c[2 * k][0], c[2 * k][1]), pack(c[2 * k][2], c[2 * k][3]), pack(c[2 * k + 1][0], c[2 * k + 1][1]),
           pack(c[2 * k + 1][2], c[2 * k + 1][3])}};
}
// c[16 kM, kWidth] += p[16 kM, 8 kN] · tile, whose rows are the sum's index.
template <int kWidth, int kM, int kN>
__device__ __forceinline__ void accumulate(float (&c)[kM][kWidth / 8][4], const float (&p)[kM][kN][4], uint32_t tile,
                                           const LaneOffsets<kWidth>& lane) {
  constexpr int kRow = LaneOffsets<kWidth>::kRow;
#pragma unroll
  for (int k = 0; k < kN / 2; ++k) {
    Fragment a[kM];
#pragma unroll
    for (int m = 0; m < kM; ++m) a[m] = as_rows(p[m], k);
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      const Fragment b = load_matrix_transposed(tile + lane.a + k * 16 * kRow + n * 32);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        multiply(c[m][2 * n], a[m], b.x[0], b.x[1]);
        multiply(c[m][2 * n + 1], a[m], b.x[2], b.x[3]);
      }
    }
  }
}

// Writes a warp's result through its own 16 kM rows of a tile, which no other warp reads, to rows [first, ...) of
// global memory, times factor[row of the fragment].
template <int kWidth, int kM>
__device__ __forceinline__ void store_rows(const float (&c)[kM][kWidth / 8][4], const float (&factor)[kM][2],
                                           Bf16* tile, Bf16* to, int64_t stride, int first, int rows, int dim) {
  constexpr int kChunks = kWidth / 8, kLine = kWidth + kPad;
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<uint32_t*>(tile + (m * 16 + half * 8 + lane / 4) * kLine + n * 8 + lane % 4 * 2) =
            pack(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]);
  __syncwarp();
#pragma unroll 4
  for (int at = lane; at < kM * 16 * kChunks; at += 32) {
    const int row = at / kChunks, chunk = at % kChunks;
    if (first + row < rows && chunk * 8 < dim)
      *reinterpret_cast<uint4*>(to + (first + row) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(tile + row * kLine + chunk * 8);
  }
}

}  // namespace mantissa::cuda
