// How the cast kernels read a matrix: magnitudes as integers, padded and rotated panels, random bytes.
#pragma once

#include <cstring>
#include <type_traits>

#include "numerics/hadamard.h"
#include "ops/cpu/quantize.h"

namespace mantissa::MANTISSA_ISA_NS {

// ---- magnitudes: |x| as integer bits, which order as the values do; NaN counts as 0 ----

template <class T>
using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

MANTISSA_HD uint16_t magnitude(bf16 x) {
  const auto a = static_cast<uint16_t>(x.bits & 0x7fffu);
  return a > 0x7f80u ? uint16_t{0} : a;
}
MANTISSA_HD uint32_t magnitude(float x) { return amax_bits(0, x); }

template <class T>
MANTISSA_HD float float_of(Bits<T> bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << (sizeof(T) == 2 ? 16 : 0));
}

template <class T>
uint32_t flat_amax(const T* x, int64_t n) {
  Bits<T> most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const Bits<T> a = magnitude(x[i]);
    most = a > most ? a : most;
  }
  return std::bit_cast<uint32_t>(float_of<T>(most));
}

// ---- panels ----

template <class T>
void copy_padded(const T* x, int64_t ld, int rows, int cols, T* tile) {
  std::memset(static_cast<void*>(tile), 0, kPanel * kPanel * sizeof(T));
  for (int r = 0; r < rows; ++r)
    std::memcpy(static_cast<void*>(tile + r * kPanel), x + r * ld, static_cast<size_t>(cols) * sizeof(T));
}

// The Hadamard transform down each 16 rows; `y` (pitch 128) may be `x`. Lanes are columns.
inline void rotate_panel(const bf16* x, int64_t ld, bf16* y) {
  constexpr int lanes = 16;
  for (int r = 0; r < kPanel; r += kHadamardSize)
    for (int c = 0; c < kPanel; c += lanes) {
      double v[kHadamardSize][lanes];
      for (int i = 0; i < kHadamardSize; ++i) {
        const bf16* row = x + (r + i) * ld + c;
#pragma omp simd
        for (int l = 0; l < lanes; ++l) v[i][l] = hadamard_signed(to_float(row[l]), i);
      }
      for (int span = 1; span < kHadamardSize; span *= 2)
        for (int i = 0; i < kHadamardSize; ++i) {
          if (i & span) continue;
#pragma omp simd
          for (int l = 0; l < lanes; ++l) hadamard_butterfly(v[i][l], v[i + span][l]);
        }
      for (int j = 0; j < kHadamardSize; ++j) {
        bf16* row = y + (r + j) * kPanel + c;
#pragma omp simd
        for (int l = 0; l < lanes; ++l) row[l] = hadamard_round(v[j][l]);
      }
    }
}

// ---- random bytes ----

// draw(key, first + i) for i in [0, n), n <= 16, into words[4 i]; lanes are draws.
inline void draw_blocks(const RandomKey& key, uint64_t first, int n, uint32_t* words) {
  constexpr int lanes = 16;
  uint32_t w[4][lanes];
#pragma omp simd
  for (int i = 0; i < lanes; ++i) {
    const Random4 r = draw(key, first + static_cast<uint64_t>(i));
    w[0][i] = r.x[0], w[1][i] = r.x[1], w[2][i] = r.x[2], w[3][i] = r.x[3];
  }
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < 4; ++j) words[4 * i + j] = w[j][i];
}

// One byte per element of the panel at (m0, k0): byte e % 16 of draw e / 16, e = (token_offset + m) * K + k. `bytes` has room
// for 64 more bytes a row than are used.
inline void draw_bytes(const RandomKey& key, const QuantizeJob& job, int64_t m0, int64_t k0, int rows, uint8_t* bytes) {
  for (int r = 0; r < rows; ++r) {
    const auto e = static_cast<uint64_t>((job.token_offset + m0 + r) * job.k + k0);
    uint32_t words[4 * 16];
    draw_blocks(key, e / 16, 9, words);
    std::memcpy(bytes + r * kPanel, reinterpret_cast<const uint8_t*>(words) + e % 16, kPanel);
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
