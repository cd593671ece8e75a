// Square root and quotient as IEEE 754 rounds them, and codes of 8-bit moments, without the branches for operands of
// unusual size: within the ranges given the results are those of sqrtf, / and moment8.h to the bit
// (tools/rounded_forms.cu compares them).
#pragma once

#include <cstdint>

namespace mantissa::cuda {

// Ranges in which all of AdamW's operands are ordinary: products and remainders below keep every bit.
constexpr float kLeastOrdinary = 0x1p-100f;  // of |m| and v
constexpr float kMostMoment = 0x1p30f, kMostSquare = 0x1p20f;

// v in [2^-100, 2^100]. One Newton step about the approximate inverse root, which is off by 2^-22 at most.
__device__ __forceinline__ float root_of(float v) {
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  const float root = v * inverse, half = 0.5f * inverse;
  return __fmaf_rn(__fmaf_rn(-root, root, v), half, root);
}

// 1 / x for x in [2^-120, 2^100].
__device__ __forceinline__ float reciprocal_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}

// x / c with 1 / c rounded at hand: one correction makes it the quotient rounded to nearest (Markstein, "Computation of
// elementary functions on the IBM RISC System/6000", 1990). |x| in [2^-100, 2^30], c in [2^-50, 2^20].
__device__ __forceinline__ float quotient_of(float x, float c, float inverse) {
  const float q = x * inverse;
  return __fmaf_rn(__fmaf_rn(-c, q, x), inverse, q);
}

// moment8::nearest_root(y) in the low byte, for y in [0, 65026]: y parts k and k + 1 at (k + 1/2)² + 1/4, far from the
// squares where the floor of its root steps.
__device__ __forceinline__ uint32_t nearest_code(float y) {
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(y));
  const float floor = __fadd_rd(root, 0x1p23f);  // an integer in the low bits
  const float edge = floor - (0x1p23f - 0.5f);
  float up;  // 1 or 0
  asm("set.ge.f32.f32 %0, %1, %2;" : "=f"(up) : "f"(y), "f"(__fmaf_rn(edge, edge, 0.25f)));
  return __float_as_uint(floor + up);
}

// The larger one, NaN where one is.
__device__ __forceinline__ float larger_or_nan(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// Bytes of a and b (4 to 7) by the selector's digits; a digit of 8 more gives the byte's sign in all its bits.
__device__ __forceinline__ uint32_t bytes_of_two(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}
// The low bytes of four words.
__device__ __forceinline__ uint32_t low_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return bytes_of_two(bytes_of_two(a, b, 0x0040), bytes_of_two(c, d, 0x0040), 0x5410);
}
// Their high bytes.
__device__ __forceinline__ uint32_t high_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return bytes_of_two(bytes_of_two(a, b, 0x0073), bytes_of_two(c, d, 0x0073), 0x5410);
}

}  // namespace mantissa::cuda
