// The scale of delayed scaling from a window of amaxes: TransformerEngine's fused update (docs/numerics.md 3.4).
#pragma once

#include "numerics/block_scale.h"

namespace mantissa {

// numerator / amax where amax is finite and above zero, at most the largest float; else the scale before it.
MANTISSA_HD float next_delayed_scale(float scale, float amax, float numerator) {
  const bool usable = std::bit_cast<uint32_t>(amax) - 1u < 0x7f7fffffu;  // positive and finite
  const float quotient = numerator / amax;
  return usable ? (quotient < kFloatMax ? quotient : kFloatMax) : scale;
}

// Whether an amax, never below zero, is Inf or NaN.
MANTISSA_HD bool is_nonfinite_amax(float amax) { return (std::bit_cast<uint32_t>(amax) & 0x7f800000u) == 0x7f800000u; }

}  // namespace mantissa
