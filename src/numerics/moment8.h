// 8-bit codes of AdamW's moments, in blocks of 128 elements under one FP32 unit (docs/optimizer.md). A code is the
// square root of what it stands for, so the steps are fine near the block's largest value and reach four decades below
// it:
//   m       = sign k² unit, k 0..127 under a sign bit, unit = max|m| / 127²
//   sqrt(v) =      k² unit, k 0..255,                  unit = max sqrt(v) / 255²
// rounded to the nearest of these values; a positive v is never stored as zero, for m / sqrt(v) would explode. The idea
// of block-wise non-linear 8-bit moments: Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa::moment8 {

constexpr float kLeastMax = 0x1p-100f;  // blocks below are stored as zeros: their unit would lose bits

// Of a block whose largest value is `most`; kLargest is kMost or kMostRoot.
template <int kLargest>
MANTISSA_HD float unit_of(float most) {
  constexpr float kInverse = 1.0f / (static_cast<float>(kLargest) * static_cast<float>(kLargest));
  return most >= kLeastMax ? most * kInverse : 0.0f;
}
MANTISSA_HD float inverse_of(float unit) { return unit > 0 ? 1.0f / unit : 0.0f; }

MANTISSA_HD float square_of(uint32_t k) {
  const float x = std::bit_cast<float>(0x4b000000u | k) - 0x1p23f;
  return x * x;
}

// The k >= 0 whose square is nearest to y <= 65026, the larger one at a tie; 0 for NaN. The root may be approximate to
// 2^-21: its bits choose between k - 1 and k, and an exact comparison decides.
MANTISSA_HD uint32_t nearest_root(float y) {
  const float shifted = y - 0.25f;  // exact from 0.25 on; k and k + 1 part at (k + 1/2)² of it
  const float w = shifted > 0 ? shifted : 0.0f;
#if defined(__CUDA_ARCH__)
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(w));
#else
  const float root = __builtin_sqrtf(w);
#endif
  const float rounded = root * (1 - 0x1p-20f) + 0x1p23f;  // to an integer, which stands in the low bits
  const float edge = (rounded - 0x1p23f) + 0.5f;
  return (std::bit_cast<uint32_t>(rounded) & 0x1ffu) + (w >= edge * edge ? 1u : 0u);
}

MANTISSA_HD float decode_m(uint32_t code, float unit) {
  const float magnitude = square_of(code & 127u) * unit;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (code & 128u) << 24);
}
MANTISSA_HD uint32_t encode_m(float m, float inverse) {
  const uint32_t bits = std::bit_cast<uint32_t>(m);
  return nearest_root(std::bit_cast<float>(bits & 0x7fffffffu) * inverse) | (bits >> 31) << 7;
}

// v itself, and the code of its root.
MANTISSA_HD float decode_v(uint32_t code, float unit) {
  const float root = square_of(code) * unit;
  return root * root;
}
MANTISSA_HD uint32_t encode_root(float root, float inverse) {
  const uint32_t k = nearest_root(root * inverse);
  return k == 0 && root > 0 ? 1u : k;
}

}  // namespace mantissa::moment8
