#include <immintrin.h>

#include "ops/cpu/gemm/multiply.h"

namespace mantissa {
namespace {

constexpr int kRows = 8, kPanels = 3;

// Rows [0, 8) of a left panel times `panels` right panels: 8 x panels accumulators.
template <int panels>
inline void block(const char* left, const char* right, int64_t right_stride, float* c, int64_t c_stride,
                  int64_t k_tiles, bool accumulate) {
  __m512 acc[kRows][panels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < panels; ++v)
      acc[r][v] = accumulate ? _mm512_load_ps(c + r * c_stride + v * kPanelRows) : _mm512_setzero_ps();
  for (int64_t t = 0; t < k_tiles; ++t, left += kTileBytes, right += kTileBytes)
    for (int u = 0; u < kUnits; ++u) {
      __m512bh b[panels];
#pragma GCC unroll 3
      for (int v = 0; v < panels; ++v) b[v] = (__m512bh)_mm512_load_si512(right + v * right_stride + u * 64);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512bh a = (__m512bh)_mm512_set1_epi32(*reinterpret_cast<const int*>(left + r * 64 + u * 4));
#pragma GCC unroll 3
        for (int v = 0; v < panels; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], a, b[v]);
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < panels; ++v) _mm512_store_ps(c + r * c_stride + v * kPanelRows, acc[r][v]);
}

template <int panels>
void columns(const TileProduct& p, int first) {
  const char* right = static_cast<const char*>(p.right) + first * p.right_stride;
  for (int i = 0; i < p.left_panels; ++i) {
    const char* left = static_cast<const char*>(p.left) + i * p.left_stride;
    float* c = p.c + i * kPanelRows * p.c_stride + first * kPanelRows;
    for (int r = 0; r < p.left_rows; r += kRows)
      block<panels>(left + r * 64, right, p.right_stride, c + r * p.c_stride, p.c_stride, p.k_tiles, p.accumulate);
  }
}

}  // namespace

void multiply_avx512bf16(const TileProduct& p) {
  int first = 0;
  for (; first + kPanels <= p.right_panels; first += kPanels) columns<kPanels>(p, first);
  if (p.right_panels - first == 2) return columns<2>(p, first);
  if (p.right_panels - first == 1) columns<1>(p, first);
}

}  // namespace mantissa
