// What a code of a quantized copy stands for, the same on every backend.
#pragma once

#include "numerics/block_scale.h"
#include "tensor/quant.h"

namespace mantissa {

// A quantized copy as kernels read it; see Quantized.
struct QuantizedView {
  const uint8_t* data;    // [outer, inner]; bf16 where format.values
  const void* scale_inv;  // F32, E8M0 or E4M3
  const float* amax;      // [1] of the tensor; ScaleRule::kNvfp4 alone reads it
  QuantFormat format;
  int64_t outer, inner;
};

inline QuantizedView view_of(const Quantized& q) {
  return {.data = static_cast<const uint8_t*>(q.data.data),
          .scale_inv = q.scale_inv.data,
          .amax = q.amax,
          .format = q.format,
          .outer = q.data.dim(0),
          .inner = q.data.dim(1)};
}

MANTISSA_HD float decode(DType element, uint8_t code) {
  return element == DType::kE4M3 ? decode_e4m3(code) : element == DType::kE5M2 ? decode_e5m2(code) : decode_e2m1(code);
}

// Where the scale of a block is stored, `lines` and `blocks` counted along outer and inner.
MANTISSA_HD int64_t scale_index(const QuantFormat& f, int64_t outer, int64_t inner, int64_t line, int64_t block) {
  const int64_t blocks = ceil_div(inner, f.block);
  if (f.layout == ScaleLayout::kBlocks) return line * blocks + block;
  return f.blocking == Blocking::kTile ? line * (ceil_div(blocks, 4) * 4) + block
                                       : block * (ceil_div(outer, 4) * 4) + line;
}

// What the codes of the block of element (row, j) are multiplied by.
MANTISSA_HD float factor_of(const QuantizedView& q, int64_t row, int64_t j) {
  const QuantFormat& f = q.format;
  if (f.blocking == Blocking::kTensor) return static_cast<const float*>(q.scale_inv)[0];
  const int64_t line = f.blocking == Blocking::kTile ? row / f.block : row;
  const int64_t i = scale_index(f, q.outer, q.inner, line, j / f.block);
  switch (f.rule) {
    case ScaleRule::kE8M0:
      return decode_e8m0(static_cast<const uint8_t*>(q.scale_inv)[i]);
    case ScaleRule::kNvfp4:
      return nvfp4_decode_scale(static_cast<const uint8_t*>(q.scale_inv)[i], *q.amax);
    default:
      return static_cast<const float*>(q.scale_inv)[i];
  }
}

// The code of the format's largest value.
MANTISSA_HD uint8_t largest_code(DType element) {
  return element == DType::kE4M3 ? 0x7e : element == DType::kE5M2 ? 0x7b : 0x07;
}

MANTISSA_HD bool is_largest(DType element, uint8_t code) {
  return (code & (element == DType::kE2M1 ? 7 : 0x7f)) == largest_code(element);
}
// Whether x lies beyond y, which its code stands for, by more than the rounding of scale and product.
MANTISSA_HD bool is_beyond(float x, float y) {
  const float a = x < 0 ? -x : x, b = y < 0 ? -y : y;
  return b > 0 && a > b * (1 + 0x1p-20f);
}

// Whether the scaled value x was clipped: its code is the largest, which stands for y.
MANTISSA_HD bool is_saturated(DType element, uint8_t code, float x, float y) {
  return is_largest(element, code) && is_beyond(x, y);
}

// Whether a non-zero x became zero.
MANTISSA_HD bool is_flushed(float x, float y) { return (x > 0 || x < 0) && y == 0; }

}  // namespace mantissa
