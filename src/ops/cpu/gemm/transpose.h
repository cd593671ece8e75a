// Moves of 16 x 16 units of 32 bits.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "numerics/inline.h"

namespace mantissa::MANTISSA_ISA_NS {

// out[r][u] = in[r][u]; `in_stride` is in bytes, out is dense and 64-byte aligned.
MANTISSA_HD void copy_tile(const void* in, int64_t in_stride, void* out) {
  for (int r = 0; r < 16; ++r)
    std::memcpy(static_cast<char*>(out) + r * 64, static_cast<const char*>(in) + r * in_stride, 64);
}

#if defined(__AVX512F__)

typedef int32_t Units __attribute__((vector_size(64)));

// Within each 128-bit lane: the low or high units, or pairs of units, of a and b in turn.
MANTISSA_HD Units low_units(Units a, Units b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
MANTISSA_HD Units high_units(Units a, Units b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
MANTISSA_HD Units low_pairs(Units a, Units b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
MANTISSA_HD Units high_pairs(Units a, Units b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
// Lanes of a, then of b: the first two, the last two, the even, the odd ones.
MANTISSA_HD Units first_lanes(Units a, Units b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
MANTISSA_HD Units last_lanes(Units a, Units b) {
  return __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
MANTISSA_HD Units even_lanes(Units a, Units b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
MANTISSA_HD Units odd_lanes(Units a, Units b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

// out[u][r] = in[r][u].
MANTISSA_HD void transpose_tile(const void* in, int64_t in_stride, void* out) {
  Units r[16], t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) std::memcpy(&r[i], static_cast<const char*>(in) + i * in_stride, 64);
    // Pairs of rows, then fours: r[4g+j] holds unit 4l+j of rows 4g to 4g+3 in its lane l.
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) t[i] = low_units(r[i], r[i + 1]), t[i + 1] = high_units(r[i], r[i + 1]);
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = low_pairs(t[i], t[i + 2]), r[i + 1] = high_pairs(t[i], t[i + 2]);
    r[i + 2] = low_pairs(t[i + 1], t[i + 3]), r[i + 3] = high_pairs(t[i + 1], t[i + 3]);
  }
  // Then the 4 x 4 matrix of lanes.
  auto* o = static_cast<Units*>(out);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Units a = first_lanes(r[j], r[4 + j]), b = last_lanes(r[j], r[4 + j]);
    const Units c = first_lanes(r[8 + j], r[12 + j]), d = last_lanes(r[8 + j], r[12 + j]);
    o[j] = even_lanes(a, c), o[4 + j] = odd_lanes(a, c), o[8 + j] = even_lanes(b, d), o[12 + j] = odd_lanes(b, d);
  }
}

#elif defined(__AVX2__)

MANTISSA_HD void transpose_8x8(const char* in, int64_t in_stride, char* out) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(in + i * in_stride));
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    _mm256_store_ps(reinterpret_cast<float*>(out + j * 64), _mm256_permute2f128_ps(r[j], r[4 + j], 0x20));
    _mm256_store_ps(reinterpret_cast<float*>(out + (4 + j) * 64), _mm256_permute2f128_ps(r[j], r[4 + j], 0x31));
  }
}

MANTISSA_HD void transpose_tile(const void* in, int64_t in_stride, void* out) {
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      transpose_8x8(static_cast<const char*>(in) + i * 8 * in_stride + j * 32, in_stride,
                    static_cast<char*>(out) + j * 8 * 64 + i * 32);
}

#else

MANTISSA_HD void transpose_tile(const void* in, int64_t in_stride, void* out) {
  auto* o = static_cast<uint32_t*>(out);
  for (int r = 0; r < 16; ++r) {
    uint32_t row[16];
    std::memcpy(row, static_cast<const char*>(in) + r * in_stride, 64);
    for (int u = 0; u < 16; ++u) o[u * 16 + r] = row[u];
  }
}

#endif

// out[p][c] = (in[2p][c], in[2p+1][c]) of 16-bit elements: 32 rows of 16 become 16 rows of 16 pairs.
MANTISSA_HD void interleave_tile(const void* in, int64_t in_stride, void* out) {
  for (int p = 0; p < 16; ++p) {
    const auto* even = reinterpret_cast<const uint16_t*>(static_cast<const char*>(in) + 2 * p * in_stride);
    const auto* odd = reinterpret_cast<const uint16_t*>(static_cast<const char*>(in) + (2 * p + 1) * in_stride);
    auto* o = static_cast<uint32_t*>(out) + p * 16;
#pragma omp simd
    for (int c = 0; c < 16; ++c) o[c] = even[c] | static_cast<uint32_t>(odd[c]) << 16;
  }
}

#if defined(__AVX512BW__)
// The same of 32 rows of 32 elements, whole cache lines, to two tiles.
MANTISSA_HD void interleave_two_tiles(const void* in, int64_t in_stride, void* first, void* second) {
  typedef uint16_t Halves __attribute__((vector_size(64)));
  for (int p = 0; p < 16; ++p) {
    Halves even, odd;
    std::memcpy(&even, static_cast<const char*>(in) + 2 * p * in_stride, 64);
    std::memcpy(&odd, static_cast<const char*>(in) + (2 * p + 1) * in_stride, 64);
    static_cast<Halves*>(first)[p] =
        __builtin_shufflevector(even, odd, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42,
                                11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
    static_cast<Halves*>(second)[p] =
        __builtin_shufflevector(even, odd, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25,
                                57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  }
}
#endif

}  // namespace mantissa::MANTISSA_ISA_NS
