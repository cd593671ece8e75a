// Products of Hopper's warpgroups (PTX ISA, "Asynchronous warpgroup level matrix instructions"). A tile lies in panels
// of 64 columns, a row of a panel in 128 bytes, its 16-byte chunks exchanged by row % 8 (the 128-byte swizzle). Results
// and left factors in registers lie as mma.m16n8k16's, 16 rows a warp.
#pragma once

#include "ops/cuda/attention/tile.cuh"

namespace mantissa::cuda {

// Whether the architecture that is being compiled for has warpgroups' products.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kHasWarpgroups = true;
#else
constexpr bool kHasWarpgroups = false;
#endif

// The first address for tiles in dynamic shared memory; up to 1023 bytes are passed over.
__device__ __forceinline__ Bf16* aligned_tiles(char* raw) {
  return reinterpret_cast<Bf16*>((reinterpret_cast<uintptr_t>(raw) + 1023) / 1024 * 1024);
}

// Rows [first, first + kRows) of one head into a tile kWidth wide, as copy_tile.
template <int kRows, int kWidth, int kThreads>
__device__ __forceinline__ void copy_panels(Bf16* tile, const Bf16* from, int64_t stride, int first, int rows,
                                            int dim) {
  constexpr int kChunks = kWidth / 8;
  const uint32_t to = shared_address(tile);
#pragma unroll
  for (int i = 0; i < (kRows * kChunks + kThreads - 1) / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x), row = at / kChunks, chunk = at % kChunks;
    if (kRows * kChunks % kThreads != 0 && at >= kRows * kChunks) break;
    const bool valid = first + row < rows && chunk * 8 < dim;
    copy16(to + chunk / 8 * (kRows * 128) + row * 128 + ((chunk % 8) ^ (row % 8)) * 16,
           from + (valid ? (first + row) * stride + chunk * 8 : 0), valid);
  }
}

// Describes a tile of kRows rows from `address` on. Along the sum: its rows are the product's rows or columns; across
// it: they are the sum's index.
__device__ __forceinline__ uint64_t describe(uint32_t address, uint32_t panel_bytes) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return (address & 0x3ffff) >> 4 | uint64_t{panel_bytes >> 4} << 16 | kEightRows | kSwizzle128;
}

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of c across.
template <int kN>
__device__ __forceinline__ void pin(float (&c)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n][i])::"memory");
}

// c[64, 64] += a[64,16] b[16,64], = in first_product; kAcross: b's tile lies across the sum; kAcrossA: a's.
template <bool kAcross, bool kAcrossA = false>
__device__ __forceinline__ void product(float (&c)[8][4], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, %35, %34;\n}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
        "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
        "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
        "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
      : "l"(a), "l"(b), "n"(kAcross ? 1 : 0), "n"(kAcrossA ? 1 : 0));
}
template <bool kAcross, bool kAcrossA = false>
__device__ __forceinline__ void first_product(float (&c)[8][4], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, %35, %34;\n}"
      : "=f"(c[0][0]), "=f"(c[0][1]), "=f"(c[0][2]), "=f"(c[0][3]), "=f"(c[1][0]), "=f"(c[1][1]), "=f"(c[1][2]),
        "=f"(c[1][3]), "=f"(c[2][0]), "=f"(c[2][1]), "=f"(c[2][2]), "=f"(c[2][3]), "=f"(c[3][0]), "=f"(c[3][1]),
        "=f"(c[3][2]), "=f"(c[3][3]), "=f"(c[4][0]), "=f"(c[4][1]), "=f"(c[4][2]), "=f"(c[4][3]), "=f"(c[5][0]),
        "=f"(c[5][1]), "=f"(c[5][2]), "=f"(c[5][3]), "=f"(c[6][0]), "=f"(c[6][1]), "=f"(c[6][2]), "=f"(c[6][3]),
        "=f"(c[7][0]), "=f"(c[7][1]), "=f"(c[7][2]), "=f"(c[7][3])
      : "l"(a), "l"(b), "n"(kAcross ? 1 : 0), "n"(kAcrossA ? 1 : 0));
}
template <bool kAcross>
__device__ __forceinline__ void product(float (&c)[8][4], const Fragment& a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, %37;\n}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
        "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
        "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
        "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "n"(kAcross ? 1 : 0));
}
// c[64, 128] += a[64,16] b[16,128], = in first_product; kAcross: b's tile lies across the sum.
template <bool kAcross>
__device__ __forceinline__ void product(float (&c)[16][4], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %66;\n}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
        "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
        "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
        "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]),
        "+f"(c[8][3]), "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]), "+f"(c[10][0]), "+f"(c[10][1]),
        "+f"(c[10][2]), "+f"(c[10][3]), "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]), "+f"(c[11][3]), "+f"(c[12][0]),
        "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]), "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]),
        "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]), "+f"(c[15][0]), "+f"(c[15][1]), "+f"(c[15][2]),
        "+f"(c[15][3])
      : "l"(a), "l"(b), "n"(kAcross ? 1 : 0));
}
template <bool kAcross>
__device__ __forceinline__ void first_product(float (&c)[16][4], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %66;\n}"
      : "=f"(c[0][0]), "=f"(c[0][1]), "=f"(c[0][2]), "=f"(c[0][3]), "=f"(c[1][0]), "=f"(c[1][1]), "=f"(c[1][2]),
        "=f"(c[1][3]), "=f"(c[2][0]), "=f"(c[2][1]), "=f"(c[2][2]), "=f"(c[2][3]), "=f"(c[3][0]), "=f"(c[3][1]),
        "=f"(c[3][2]), "=f"(c[3][3]), "=f"(c[4][0]), "=f"(c[4][1]), "=f"(c[4][2]), "=f"(c[4][3]), "=f"(c[5][0]),
        "=f"(c[5][1]), "=f"(c[5][2]), "=f"(c[5][3]), "=f"(c[6][0]), "=f"(c[6][1]), "=f"(c[6][2]), "=f"(c[6][3]),
        "=f"(c[7][0]), "=f"(c[7][1]), "=f"(c[7][2]), "=f"(c[7][3]), "=f"(c[8][0]), "=f"(c[8][1]), "=f"(c[8][2]),
        "=f"(c[8][3]), "=f"(c[9][0]), "=f"(c[9][1]), "=f"(c[9][2]), "=f"(c[9][3]), "=f"(c[10][0]), "=f"(c[10][1]),
        "=f"(c[10][2]), "=f"(c[10][3]), "=f"(c[11][0]), "=f"(c[11][1]), "=f"(c[11][2]), "=f"(c[11][3]), "=f"(c[12][0]),
        "=f"(c[12][1]), "=f"(c[12][2]), "=f"(c[12][3]), "=f"(c[13][0]), "=f"(c[13][1]), "=f"(c[13][2]), "=f"(c[13][3]),
        "=f"(c[14][0]), "=f"(c[14][1]), "=f"(c[14][2]), "=f"(c[14][3]), "=f"(c[15][0]), "=f"(c[15][1]), "=f"(c[15][2]),
        "=f"(c[15][3])
      : "l"(a), "l"(b), "n"(kAcross ? 1 : 0));
}
template <bool kAcross>
__device__ __forceinline__ void product(float (&c)[16][4], const Fragment& a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, %69;\n}"
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
        "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
        "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
        "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
        "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3]), "+f"(c[8][0]), "+f"(c[8][1]), "+f"(c[8][2]),
        "+f"(c[8][3]), "+f"(c[9][0]), "+f"(c[9][1]), "+f"(c[9][2]), "+f"(c[9][3]), "+f"(c[10][0]), "+f"(c[10][1]),
        "+f"(c[10][2]), "+f"(c[10][3]), "+f"(c[11][0]), "+f"(c[11][1]), "+f"(c[11][2]), "+f"(c[11][3]), "+f"(c[12][0]),
        "+f"(c[12][1]), "+f"(c[12][2]), "+f"(c[12][3]), "+f"(c[13][0]), "+f"(c[13][1]), "+f"(c[13][2]), "+f"(c[13][3]),
        "+f"(c[14][0]), "+f"(c[14][1]), "+f"(c[14][2]), "+f"(c[14][3]), "+f"(c[15][0]), "+f"(c[15][1]), "+f"(c[15][2]),
        "+f"(c[15][3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "n"(kAcross ? 1 : 0));
}

// c[64, 8 kN] = rows · columnsᵀ over kWidth, enqueued; both tiles lie along the sum, panels `*_panel` bytes apart.
template <int kWidth, int kN>
__device__ __forceinline__ void enqueue_rows(float (&c)[kN][4], uint32_t rows, uint32_t rows_panel, uint32_t columns,
                                             uint32_t columns_panel) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    const uint64_t a = describe(rows + k / 4 * rows_panel + k % 4 * 32, 16),
                   b = describe(columns + k / 4 * columns_panel + k % 4 * 32, 16);
    if (k == 0)
      first_product<false>(c, a, b);
    else
      product<false>(c, a, b);
  }
}
// c[64, 8 kN] += p[64, 16 kK] · tile, enqueued; the tile's rows are the sum's index.
template <int kK, int kN>
__device__ __forceinline__ void enqueue_sum(float (&c)[kN][4], const Fragment (&p)[kK], uint32_t tile,
                                            uint32_t tile_panel) {
#pragma unroll
  for (int k = 0; k < kK; ++k) product<true>(c, p[k], describe(tile + k * 16 * 128, tile_panel));
}

}  // namespace mantissa::cuda
