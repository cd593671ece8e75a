// Building blocks of matrix products on packed panels, for gemm() and for kernels that multiply inside (attention).
//
// A panel holds 16 outer rows of one side, cut along K into tiles of 16 x 16 units of 32 bits, 1 KiB each, one after
// another. A unit is one F32 (GemmMath::kF32: a tile spans 16 of K) or a pair of BF16 neighbours along K (kBF16: 32 of
// K).
//   left  tile: [16 rows][16 units]    as rows lie in memory, what AMX loads as A
//   right tile: [16 units][16 rows]    "VNNI" order, what AMX loads as B
// Rows beyond the side and units beyond K are zero.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "ops/cpu/gemm/problem.h"
#include "tensor/exec.h"

namespace mantissa {

constexpr int kPanelRows = 16;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kUnits = 16;        // units of a tile along K
constexpr int kMaxBlockColumns = 64;  // columns of C that one multiply() of gemm() covers at most

// Elements of K in a tile.
constexpr int64_t tile_k(GemmMath math) { return math == GemmMath::kBF16 ? 2 * kUnits : kUnits; }

// Tiles whose products are summed apart where a product asks for it. One sum along a vocabulary of 49,152 loses every
// term that is 2^-24 of what stands before it: the small probabilities, whose sum is not small.
constexpr int64_t kSumTiles = 16;

// C[16 left_panels, 16 right_panels] (+)= left · rightᵀ over k_tiles tiles; C is F32, row-major. Each element is summed
// along K in order, so the result does not depend on how K or C is cut into calls; with `apart` none but a whole number
// of kSumTiles may lie between the calls.
struct TileProduct {
  const void* left;     // first tile of the first panel, 64-byte aligned
  int64_t left_stride;  // bytes between panels
  const void* right;
  int64_t right_stride;
  float* c;          // 64-byte aligned
  int64_t c_stride;  // floats between rows of C, a multiple of 16
  int left_panels, right_panels;
  int64_t k_tiles;
  bool accumulate;             // adds to C, else overwrites it
  bool apart = false;          // kF32: kSumTiles tiles are summed from zero, their sums then in order
  int left_rows = kPanelRows;  // of each left panel that are wanted; rows of C beyond may stay as they are
};

#if defined(__SANITIZE_ADDRESS__)
// Touches the first byte that a product must not: AddressSanitizer then says whose it is.
inline void check_addresses(const TileProduct& p) {
  const auto check = [](const void* from, int64_t bytes) {
    const void* bad = __asan_region_is_poisoned(const_cast<void*>(from), static_cast<size_t>(bytes));
    if (bad) static_cast<void>(*static_cast<const volatile char*>(bad));
  };
  for (int i = 0; i < p.left_panels; ++i)
    check(static_cast<const char*>(p.left) + i * p.left_stride, p.k_tiles * kTileBytes);
  for (int j = 0; j < p.right_panels; ++j)
    check(static_cast<const char*>(p.right) + j * p.right_stride, p.k_tiles * kTileBytes);
  for (int row = 0; row < (p.left_panels - 1) * kPanelRows + p.left_rows; ++row)
    check(p.c + row * p.c_stride, p.right_panels * kPanelRows * int64_t{sizeof(float)});
}
#endif

// Packs `panels` panels of x from outer row `outer` and position `k` (a multiple of 16, a multiple of tile_k), k_tiles
// tiles each, to out + i stride. Codes are decoded, block scales multiplied in if `scaled`; BF16 becomes F32 in kF32
// panels.
using PackPanels = void (*)(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles,
                            bool scaled, void* out, int64_t stride);

// One instruction set's set of functions; all run on the calling thread and allocate nothing.
struct TileKernel {
  const char* name;
  GemmMath math;
  int left_panels, right_panels;  // the block of C, in panels, that fills the registers
  int64_t k_tiles;  // K tiles between visits to a block of C: a right block of them is read from a near cache
  void (*multiply)(const TileProduct& product);
  PackPanels pack_left, pack_right;
  void (*begin)();  // to be called on a thread before multiply() and
  void (*end)();    // after it: hold the AMX tile configuration
};

// kernel.multiply(product). AddressSanitizer does not instrument its inner loops, which would take 20 times as long,
// and does not see AMX loads: what they read and write is looked at here, before they run.
inline void multiply(const TileKernel& kernel, const TileProduct& product) {
#if defined(__SANITIZE_ADDRESS__)
  check_addresses(product);
#endif
  kernel.multiply(product);
}

// The best kernel of this machine for panels of BF16; where it has none for BF16, the best F32 one (see `math`).
// MANTISSA_GEMM=amx|avx512bf16|avx512|avx2|base forces one, Exit::kUnavailable if the machine lacks it.
const TileKernel& tile_kernel(const Exec& exec, GemmMath math);

}  // namespace mantissa
