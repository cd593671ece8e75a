// Vectors of 16 FP32 lanes on every instruction set (the compiler cuts them to the registers' width). They are passed
// by reference: the calling convention of vectors depends on the instruction set.
#pragma once

#include <cstring>

#include "numerics/bf16.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace mantissa::MANTISSA_ISA_NS {

typedef float Vec __attribute__((vector_size(64), may_alias));
typedef int32_t VecInt __attribute__((vector_size(64), may_alias));
typedef uint32_t VecBits __attribute__((vector_size(64), may_alias));
typedef uint16_t VecHalf __attribute__((vector_size(32), may_alias));

// 64-byte aligned memory as a vector.
MANTISSA_HD const Vec& lanes_at(const float* p) { return *reinterpret_cast<const Vec*>(p); }
MANTISSA_HD Vec& lanes_at(float* p) { return *reinterpret_cast<Vec*>(p); }

// x = p[0, 16), not aligned.
MANTISSA_HD void load_lanes(Vec& x, const float* p) { std::memcpy(&x, p, sizeof(x)); }
MANTISSA_HD void load_lanes(Vec& x, const bf16* p) {
  VecHalf half;
  std::memcpy(&half, p, sizeof(half));
  x = (Vec)(__builtin_convertvector(half, VecBits) << 16);
}

// sum += a b, fused where the instruction set has it for 16 lanes.
MANTISSA_HD void multiply_add(Vec& sum, const Vec& a, const Vec& b) {
#if defined(__AVX512F__)
  sum = (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#else
  sum += a * b;
#endif
}

// The sum of all lanes, halves first.
MANTISSA_HD float sum_lanes(const Vec& lanes) {
  Vec x = lanes;
  x += __builtin_shuffle(x, VecInt{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  x += __builtin_shuffle(x, VecInt{4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  x += __builtin_shuffle(x, VecInt{2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13});
  return x[0] + x[1];
}

// sum(a b) over n elements.
template <class E>
MANTISSA_HD float dot_of(const E* a, const E* b, int64_t n) {
  Vec sum = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Vec x, y;
    load_lanes(x, a + i);
    load_lanes(y, b + i);
    multiply_add(sum, x, y);
  }
  float total = sum_lanes(sum);
  for (; i < n; ++i) total += to_float(a[i]) * to_float(b[i]);
  return total;
}

}  // namespace mantissa::MANTISSA_ISA_NS
