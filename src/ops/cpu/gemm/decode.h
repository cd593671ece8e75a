// Stored elements to FP32, one by one: what packed decoders are tested against and ragged edges use.
#pragma once

#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/fp4.h"
#include "numerics/fp8.h"
#include "ops/cpu/gemm/problem.h"

namespace mantissa {

// Element i of an array of `dtype`; a code without its scale.
MANTISSA_HD float element_at(const void* data, DType dtype, int64_t i) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBF16:
      return to_float(static_cast<const bf16*>(data)[i]);
    case DType::kE4M3:
      return decode_e4m3(bytes[i]);
    case DType::kE5M2:
      return decode_e5m2(bytes[i]);
    case DType::kE8M0:
      return decode_e8m0(bytes[i]);
    case DType::kE2M1:
      return decode_e2m1(static_cast<uint8_t>((bytes[i / 2] >> (i % 2 * 4)) & 15));
    default:
      return 0;
  }
}

// The block scale that data[row, col], as stored, is multiplied by; 1 without scales.
MANTISSA_HD float scale_at(const GemmOperand& x, int64_t row, int64_t col) {
  if (!x.scales) return 1;
  return element_at(x.scales, x.scale_dtype, (row >> x.scale_row_bits) * x.scale_stride + (col >> x.scale_col_bits));
}

}  // namespace mantissa
