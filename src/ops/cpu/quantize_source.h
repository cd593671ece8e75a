// How the cast kernels read a matrix: magnitudes as integers, padded and rotated panels, random bytes.
#pragma once

#include <cstring>
#include <utility>

#include "numerics/hadamard.h"
#include "ops/cpu/quantize.h"

namespace mantissa::MANTISSA_ISA_NS {

// ---- magnitudes as signed integers that order as |x| does; NaN is negative, so a maximum that starts at 0 drops it
// ----

template <class T>
struct Order;
template <>
struct Order<bf16> {
  using Key = int16_t;
  static constexpr Key kZero = 0x7f;
  static MANTISSA_HD Key key(bf16 x) { return static_cast<Key>((x.bits & 0x7fffu) + 0x7fu); }
  static MANTISSA_HD float value(Key key) { return std::bit_cast<float>(static_cast<uint32_t>(key - kZero) << 16); }
};
template <>
struct Order<float> {
  using Key = int32_t;
  static constexpr Key kZero = 0x7fffff;
  static MANTISSA_HD Key key(float x) {
    return static_cast<Key>((std::bit_cast<uint32_t>(x) & 0x7fffffffu) + 0x7fffffu);
  }
  static MANTISSA_HD float value(Key key) { return std::bit_cast<float>(static_cast<uint32_t>(key - kZero)); }
};
template <class T>
using Key = typename Order<T>::Key;

template <class T>
uint32_t flat_amax(const T* x, int64_t n) {
  Key<T> most = Order<T>::kZero;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const Key<T> a = Order<T>::key(x[i]);
    most = a > most ? a : most;
  }
  return std::bit_cast<uint32_t>(Order<T>::value(most));
}

// ---- panels ----

template <class T>
void copy_padded(const T* x, int64_t ld, int rows, int cols, T* tile) {
  std::memset(static_cast<void*>(tile), 0, kPanel * kPanel * sizeof(T));
  for (int r = 0; r < rows; ++r)
    std::memcpy(static_cast<void*>(tile + r * kPanel), x + r * ld, static_cast<size_t>(cols) * sizeof(T));
}

template <int... i>
MANTISSA_HD void rotate_column(const bf16* x, int64_t ld, bf16* y, std::integer_sequence<int, i...>) {
  float v[kHadamardSize] = {to_float(x[i * ld]) * hadamard_factor(i)...};
  hadamard_sums(v);
  ((y[i * kPanel] = to_bf16(v[i])), ...);
}

// The Hadamard transform down each 16 rows; `y` (pitch 128) may be `x`. Lanes are columns.
inline void rotate_panel(const bf16* x, int64_t ld, bf16* y) {
  for (int r = 0; r < kPanel; r += kHadamardSize) {
    const bf16* from = x + r * ld;
    bf16* to = y + r * kPanel;
#pragma omp simd
    for (int c = 0; c < kPanel; ++c)
      rotate_column(from + c, ld, to + c, std::make_integer_sequence<int, kHadamardSize>{});
  }
}

// ---- random bytes ----

// Draws first + i into words[4 i] for i in [0, 8), then second + i; lanes are draws.
inline void draw_blocks(const RandomKey& key, uint64_t first, uint64_t second, uint32_t* words) {
  constexpr int lanes = 16;
  uint32_t w[4][lanes];
#pragma omp simd
  for (int i = 0; i < lanes; ++i) {
    const Random4 r = draw(key, (i < 8 ? first : second) + static_cast<uint64_t>(i & 7));
    w[0][i] = r.x[0], w[1][i] = r.x[1], w[2][i] = r.x[2], w[3][i] = r.x[3];
  }
  for (int i = 0; i < lanes; ++i)
    for (int j = 0; j < 4; ++j) words[4 * i + j] = w[j][i];
}

// One byte per element of `rows` (even) rows of the panel at (m0, k0): byte e % 16 of draw e / 16,
// e = (token_offset + m) * K + k.
inline void draw_bytes(const RandomKey& key, const QuantizeJob& job, int64_t m0, int64_t k0, int rows, uint8_t* bytes) {
  const auto first = static_cast<uint64_t>((job.token_offset + m0) * job.k + k0), pitch = static_cast<uint64_t>(job.k);
  uint32_t words[4 * 16];
  for (int r = 0; r < rows; ++r) {
    const uint64_t e = first + static_cast<uint64_t>(r) * pitch;
    if (e % 16 == 0 && pitch % 16 == 0) {  // 8 draws a row: two rows at once
      draw_blocks(key, e / 16, (e + pitch) / 16, words);
      std::memcpy(bytes + r * kPanel, words, sizeof words);
      ++r;
    } else {
      draw_blocks(key, e / 16, e / 16 + 8, words);
      std::memcpy(bytes + r * kPanel, reinterpret_cast<const uint8_t*>(words) + e % 16, kPanel);
    }
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
