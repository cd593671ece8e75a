// Runs of stored elements to the element type of a panel: FP32, or BF16, in which every product of a code and its block
// scale is exact where it is used.
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "ops/cpu/gemm/decode.h"

namespace mantissa::MANTISSA_ISA_NS {

#if defined(__AVX512BW__)

// BF16 values of the magnitudes that are no ordinary binade (subnormals, Inf, NaN), at index magnitude % 32.
alignas(64) constexpr uint16_t kOddE4m3[32] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0, 0,     0,
                                               0, 0,      0,      0,      0,      0,      0,      0,      0, 0,     0,
                                               0, 0,      0,      0,      0,      0,      0,      0,      0, 0x7fc0};
alignas(64) constexpr uint16_t kOddE5m2[32] = {0, 0x3780, 0x3800, 0x3840, 0, 0, 0,      0,      0,      0,     0,
                                               0, 0,      0,      0,      0, 0, 0,      0,      0,      0,     0,
                                               0, 0,      0,      0,      0, 0, 0x7f80, 0x7fc0, 0x7fc0, 0x7fc0};
alignas(64) constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// Sixteen FP8 codes as BF16, their finite values times 2^shift; zeros, Inf and NaN stay.
template <int mantissa, int bias, int special>
MANTISSA_HD __m256i decode_fp8(__m128i codes, const uint16_t* odd, int shift) {
  const __m256i w = _mm256_cvtepu8_epi16(codes), magnitude = _mm256_and_si256(w, _mm256_set1_epi16(0x7f));
  const __mmask16 top = _mm256_cmpge_epu16_mask(magnitude, _mm256_set1_epi16(special));
  const __mmask16 low = _mm256_cmplt_epu16_mask(magnitude, _mm256_set1_epi16(1 << mantissa));
  const auto* table = reinterpret_cast<const __m256i*>(odd);
  const __m256i odd_values =
      _mm256_permutex2var_epi16(_mm256_load_si256(table), magnitude, _mm256_load_si256(table + 1));
  __m256i v = _mm256_add_epi16(_mm256_slli_epi16(magnitude, 7 - mantissa), _mm256_set1_epi16((127 - bias) << 7));
  v = _mm256_mask_mov_epi16(v, static_cast<__mmask16>(top | low), odd_values);
  const auto moves = static_cast<__mmask16>(_mm256_test_epi16_mask(magnitude, magnitude) & ~top);
  v = _mm256_mask_add_epi16(v, moves, v, _mm256_set1_epi16(static_cast<int16_t>(shift * 128)));
  return _mm256_or_si256(v, _mm256_slli_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x80)), 8));
}

// Sixteen E2M1 codes in eight bytes, times `scale`, as BF16.
MANTISSA_HD __m256i decode_fp4(__m128i bytes, float scale) {
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(bytes, mask), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  const __m512 values = _mm512_mul_ps(_mm512_load_ps(kE2m1), _mm512_set1_ps(scale));
  const __m512i halves = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(values), 16);
  return _mm256_permutexvar_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(even, odd)),
                                  _mm512_maskz_cvtepi32_epi16(0xffff, halves));
}

// k of the power of two 2^k; -127 for 2^-127.
MANTISSA_HD int exponent_of(float power) { return static_cast<int>(std::bit_cast<uint32_t>(power) >> 23) - 127; }

// Sixteen elements from data[row, col] as BF16. Block scales of FP8 codes are powers of two where panels are BF16.
MANTISSA_HD __m256i decode_sixteen(const GemmOperand& x, int64_t row, int64_t col, float scale) {
  const int64_t at = row * x.stride + col;
  const uint8_t* bytes = static_cast<const uint8_t*>(x.data);
  switch (x.dtype) {
    case DType::kE4M3:
      return decode_fp8<3, 7, 0x7f>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + at)), kOddE4m3,
                                    exponent_of(scale));
    case DType::kE5M2:
      return decode_fp8<2, 15, 0x7c>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + at)), kOddE5m2,
                                     exponent_of(scale));
    case DType::kE2M1:
      return decode_fp4(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + at / 2)), scale);
    default:
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 2 * at));
  }
}

// data[row, col .. col + n) times its block scales if `scaled`; n is 16 or 32, col a multiple of 16. Blocks of scales
// are multiples of 16.
MANTISSA_HD void decode_row(const GemmOperand& x, int64_t row, int64_t col, int n, bool scaled, bf16* out) {
  for (int i = 0; i < n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        decode_sixteen(x, row, col + i, scaled ? scale_at(x, row, col + i) : 1));
}

MANTISSA_HD void decode_row(const GemmOperand& x, int64_t row, int64_t col, int n, bool scaled, float* out) {
  for (int i = 0; i < n; i += 16) {
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, decode_sixteen(x, row, col + i, 1));
    const __m512 values = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
    _mm512_storeu_ps(out + i, _mm512_mul_ps(values, _mm512_set1_ps(scaled ? scale_at(x, row, col + i) : 1)));
  }
}

#else

// As above; panels are F32 here.
template <class E>
MANTISSA_HD void decode_row(const GemmOperand& x, int64_t row, int64_t col, int n, bool scaled, E* out) {
  if (x.dtype == DType::kBF16) {
    const bf16* values = static_cast<const bf16*>(x.data) + row * x.stride + col;
#pragma omp simd
    for (int i = 0; i < n; ++i) out[i] = from_float<E>(to_float(values[i]));
    return;
  }
  for (int i = 0; i < n; i += 16) {
    const float scale = scaled ? scale_at(x, row, col + i) : 1.0f;
    for (int j = 0; j < 16; ++j)
      out[i + j] = from_float<E>(element_at(x.data, x.dtype, row * x.stride + col + i + j) * scale);
  }
}

#endif

}  // namespace mantissa::MANTISSA_ISA_NS
