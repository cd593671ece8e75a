// Scales from amaxes, in FP32 operations that are each rounded once: the formulas of NVIDIA TransformerEngine 2.20
// (docs/numerics.md). `scale` multiplies before the cast, `scale_inv` is stored with the data.
#pragma once

#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"

namespace mantissa {

inline constexpr float kFloatMax = 0x1.fffffep127f;

// What an overflowing FP32 scale becomes: the largest float for per-tensor scales, the largest value of the source's
// dtype for blocks. It overflows for amax < 1.3e-36.
inline constexpr float kScaleForInfF32 = kFloatMax;
inline constexpr float kScaleForInfBF16 = 0x1.fep127f;

// scale = fp_max / amax; 1 when amax is 0, Inf or NaN. `pow2` clears the mantissa, which rounds down to a power of two.
MANTISSA_HD float compute_scale_from_amax(float amax, float fp_max, bool pow2, float value_for_inf) {
  const uint32_t a = std::bit_cast<uint32_t>(amax);
  const bool usable = a - 1u < 0x7f7fffffu;  // positive and finite
  const float quotient = fp_max / amax;
  const float finite = quotient <= kFloatMax ? quotient : value_for_inf;
  const uint32_t bits = std::bit_cast<uint32_t>(finite) & (pow2 ? 0xff800000u : 0xffffffffu);
  return usable ? std::bit_cast<float>(bits) : 1.0f;
}

// fl(1/448) and fl(1/57344).
inline constexpr float kInverseMaxE4M3 = 0x1.24924ap-9f;
inline constexpr float kInverseMaxE5M2 = 0x1.24924ap-16f;

// MXFP8 exponent byte: the smallest power of two with amax / 2^(E-127) <= fp_max.
MANTISSA_HD uint8_t mxfp8_exponent(float amax, float inverse_max) { return encode_e8m0(amax * inverse_max); }

// NVFP4 scales in two levels (arXiv 2509.25149): one FP32 scale per tensor, one E4M3 scale per block.
struct Nvfp4TensorScale {
  float encode;     // 2688 / amax, 2688 = 448 * 6
  float decode;     // 1 / encode
  float per_block;  // encode / 6: block amax -> E4M3 scale
};

// fl(1 / 2688²): what a product of codes and block scales of two tensors is multiplied by, beside their amaxes.
inline constexpr float kNvfp4Factor = 0x1.293726p-23f;

MANTISSA_HD Nvfp4TensorScale nvfp4_tensor_scale(float amax) {
  const float quotient = 2688.0f / amax;
  const float finite = quotient < kFloatMax ? quotient : kFloatMax;
  const float encode = (amax == 0.0f || finite == 0.0f) ? 1.0f : finite;
  return {encode, 1.0f / encode, encode * 0x1.555556p-3f};
}

// The stored block scale.
MANTISSA_HD uint8_t nvfp4_block_scale(float block_amax, float per_block) {
  const float scale = block_amax * per_block;
  return encode_e4m3(scale < kFloatMax ? scale : kFloatMax);
}

// What the elements of a block are multiplied by before the cast. A block whose stored scale is 0 decodes to zeros.
MANTISSA_HD float nvfp4_encode_scale(uint8_t block_scale, float tensor_decode) {
  const float inverse = 1.0f / (decode_e4m3(block_scale) * tensor_decode);
  return inverse < kFloatMax ? inverse : kFloatMax;
}

// What a code of a block is multiplied by to get its value back; `amax` is the tensor's.
MANTISSA_HD float nvfp4_decode_scale(uint8_t block_scale, float amax) {
  return decode_e4m3(block_scale) * amax * (1.0f / 2688.0f);
}

// amax folds |x| in and drops NaN, as max instructions do: the bits of finite magnitudes and Inf order as integers.
MANTISSA_HD uint32_t amax_bits(uint32_t current, float x) {
  const uint32_t a = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  const uint32_t known = a > 0x7f800000u ? 0u : a;
  return known > current ? known : current;
}

}  // namespace mantissa
