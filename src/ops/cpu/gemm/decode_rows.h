// Runs of stored elements to the element type of a panel: FP32, or BF16, in which every product of a code and its block
// scale is exact where it is used.
#pragma once

#include "ops/cpu/gemm/decode.h"

namespace mantissa::MANTISSA_ISA_NS {

MANTISSA_HD void put(float* out, float x) { *out = x; }
// Exact values only: the lower half is zero.
MANTISSA_HD void put(bf16* out, float x) { out->bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

// data[row, col .. col + 16) times one scale; col is a multiple of 16, x holds codes or BF16.
template <class E>
MANTISSA_HD void decode_sixteen(const GemmOperand& x, int64_t row, int64_t col, float scale, E* out) {
  const int64_t at = row * x.stride + col;
  const uint8_t* bytes = static_cast<const uint8_t*>(x.data) + (x.dtype == DType::kE2M1 ? at / 2 : at);
  switch (x.dtype) {
    case DType::kE4M3:
#pragma omp simd
      for (int i = 0; i < 16; ++i) put(out + i, decode_e4m3(bytes[i]) * scale);
      break;
    case DType::kE5M2:
#pragma omp simd
      for (int i = 0; i < 16; ++i) put(out + i, decode_e5m2(bytes[i]) * scale);
      break;
    case DType::kE2M1: {
      uint8_t codes[16];
      for (int i = 0; i < 8; ++i) codes[2 * i] = bytes[i] & 15, codes[2 * i + 1] = bytes[i] >> 4;
#pragma omp simd
      for (int i = 0; i < 16; ++i) put(out + i, decode_e2m1(codes[i]) * scale);
      break;
    }
    default: {
      const bf16* values = static_cast<const bf16*>(x.data) + at;
#pragma omp simd
      for (int i = 0; i < 16; ++i) put(out + i, to_float(values[i]) * scale);
      break;
    }
  }
}

// data[row, col .. col + n), n a multiple of 16; blocks of scales are multiples of 16.
template <class E>
MANTISSA_HD void decode_row(const GemmOperand& x, int64_t row, int64_t col, int n, bool scaled, E* out) {
  for (int i = 0; i < n; i += 16) decode_sixteen(x, row, col + i, scaled ? scale_at(x, row, col + i) : 1.0f, out + i);
}

}  // namespace mantissa::MANTISSA_ISA_NS
