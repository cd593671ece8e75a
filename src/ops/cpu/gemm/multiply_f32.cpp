#include "ops/cpu/gemm/multiply.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace mantissa::MANTISSA_ISA_NS {
namespace {

// Vec holds kWidth floats; a block is kRows rows x kPanels right panels of accumulators, as many as the registers hold.
#if defined(__AVX512F__)
using Vec = __m512;
constexpr int kWidth = 16, kRows = 8, kPanels = 3;
inline Vec load(const float* p) { return _mm512_load_ps(p); }
inline void store(float* p, Vec v) { _mm512_store_ps(p, v); }
inline Vec spread(float x) { return _mm512_set1_ps(x); }
inline Vec multiply_add(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__AVX2__)
using Vec = __m256;
constexpr int kWidth = 8, kRows = 4, kPanels = 1;
inline Vec load(const float* p) { return _mm256_load_ps(p); }
inline void store(float* p, Vec v) { _mm256_store_ps(p, v); }
inline Vec spread(float x) { return _mm256_set1_ps(x); }
inline Vec multiply_add(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
#else
typedef float Vec __attribute__((vector_size(16)));
constexpr int kWidth = 4, kRows = 2, kPanels = 1;
inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }
inline Vec spread(float x) { return Vec{x, x, x, x}; }
inline Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }
#endif

// One block: rows [0, kRows) of a left panel times `panels` right panels. The sums begin at C (`from_c`) or at zero
// and, with `add_c`, C is added to them at the end.
template <int panels>
inline void block(const float* left, const float* right, int64_t right_stride, float* c, int64_t c_stride,
                  int64_t k_tiles, bool from_c, bool add_c) {
  constexpr int kVecs = panels * kPanelRows / kWidth, kPerPanel = kPanelRows / kWidth;
  Vec acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = from_c ? load(c + r * c_stride + v * kWidth) : spread(0);
  for (int64_t t = 0; t < k_tiles; ++t, left += kUnits * kPanelRows, right += kUnits * kPanelRows)
    for (int u = 0; u < kUnits; ++u) {
      Vec b[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v)
        b[v] = load(right + v / kPerPanel * right_stride + u * kPanelRows + v % kPerPanel * kWidth);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec a = spread(left[r * kUnits + u]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) acc[r][v] = multiply_add(a, b[v], acc[r][v]);
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      float* to = c + r * c_stride + v * kWidth;
      store(to, add_c ? acc[r][v] + load(to) : acc[r][v]);
    }
}

template <int panels>
void columns(const TileProduct& p, int first) {
  const float* right = reinterpret_cast<const float*>(static_cast<const char*>(p.right) + first * p.right_stride);
  for (int i = 0; i < p.left_panels; ++i) {
    const float* left = reinterpret_cast<const float*>(static_cast<const char*>(p.left) + i * p.left_stride);
    float* c = p.c + i * kPanelRows * p.c_stride + first * kPanelRows;
    const int64_t step = p.apart ? kSumTiles : p.k_tiles, tile = kUnits * kPanelRows;
    for (int r = 0; r < p.left_rows; r += kRows)
      for (int64_t t = 0; t < p.k_tiles; t += step)
        block<panels>(left + r * kUnits + t * tile, right + t * tile, p.right_stride / 4, c + r * p.c_stride,
                      p.c_stride, p.k_tiles - t < step ? p.k_tiles - t : step, p.accumulate && !p.apart,
                      p.apart && (p.accumulate || t > 0));
  }
}

}  // namespace

void multiply_f32(const TileProduct& p) {
  int first = 0;
  for (; first + kPanels <= p.right_panels; first += kPanels) columns<kPanels>(p, first);
  if constexpr (kPanels > 2)
    if (p.right_panels - first == 2) return columns<2>(p, first);
  for (; first < p.right_panels; ++first) columns<1>(p, first);
}

}  // namespace mantissa::MANTISSA_ISA_NS
