// AMX: eight tile registers of 16 rows x 64 bytes. A block of C is 2 x 2 tiles (registers 0 to 3), each step of K loads
// two left (4, 5) and two right tiles (6, 7) and multiplies them four times. Intel 64 architecture manual, volume 1,
// chapter 18.
#include <immintrin.h>

#include "ops/cpu/gemm/multiply.h"

namespace mantissa {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// In static storage: the compiler's intrinsic does not say that it reads all of it.
constexpr TileConfig kConfig = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

struct Block {
  const char* left;
  int64_t left_stride;
  const char* right;
  int64_t right_stride;
  float* c;
  int64_t c_stride;  // floats
  int64_t k_tiles;
  bool accumulate;
};

// C of m x n tiles, m and n 1 or 2.
template <int m, int n>
inline void block(const Block& x) {
  const int64_t c_bytes = x.c_stride * 4;
  float* c1 = x.c + kPanelRows * x.c_stride;
  if (x.accumulate) {
    _tile_loadd(0, x.c, c_bytes);
    if constexpr (n == 2) _tile_loadd(1, x.c + kPanelRows, c_bytes);
    if constexpr (m == 2) _tile_loadd(2, c1, c_bytes);
    if constexpr (m == 2 && n == 2) _tile_loadd(3, c1 + kPanelRows, c_bytes);
  } else {
    _tile_zero(0);
    if constexpr (n == 2) _tile_zero(1);
    if constexpr (m == 2) _tile_zero(2);
    if constexpr (m == 2 && n == 2) _tile_zero(3);
  }
  const char* left = x.left;
  const char* right = x.right;
  for (int64_t t = 0; t < x.k_tiles; ++t, left += kTileBytes, right += kTileBytes) {
    _tile_loadd(6, right, 64);
    _tile_loadd(4, left, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (n == 2) {
      _tile_loadd(7, right + x.right_stride, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (m == 2) {
      _tile_loadd(5, left + x.left_stride, 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (n == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, x.c, c_bytes);
  if constexpr (n == 2) _tile_stored(1, x.c + kPanelRows, c_bytes);
  if constexpr (m == 2) _tile_stored(2, c1, c_bytes);
  if constexpr (m == 2 && n == 2) _tile_stored(3, c1 + kPanelRows, c_bytes);
}

}  // namespace

void begin_amx() { _tile_loadconfig(&kConfig); }

void end_amx() { _tile_release(); }

void multiply_amx(const TileProduct& p) {
  asm volatile("" ::: "memory");  // the load intrinsics do not say that they read memory
  for (int j = 0; j < p.right_panels; j += 2)
    for (int i = 0; i < p.left_panels; i += 2) {
      const Block x{static_cast<const char*>(p.left) + i * p.left_stride,
                    p.left_stride,
                    static_cast<const char*>(p.right) + j * p.right_stride,
                    p.right_stride,
                    p.c + i * kPanelRows * p.c_stride + j * kPanelRows,
                    p.c_stride,
                    p.k_tiles,
                    p.accumulate};
      const bool two_rows = i + 1 < p.left_panels, two_columns = j + 1 < p.right_panels;
      if (two_rows && two_columns)
        block<2, 2>(x);
      else if (two_rows)
        block<2, 1>(x);
      else if (two_columns)
        block<1, 2>(x);
      else
        block<1, 1>(x);
    }
}

}  // namespace mantissa
