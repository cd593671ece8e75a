// What CPU kernels share: dtype dispatch and amax. Everything stands in the instruction set's own namespace.
#pragma once

#include <bit>
#include <cstdint>

#include "numerics/bf16.h"
#include "tensor/dtype.h"

namespace mantissa::MANTISSA_ISA_NS {

template <class T>
struct Type {
  using type = T;
};

// Calls body(Type<float>{}) or body(Type<bf16>{}).
template <class Body>
MANTISSA_HD void with_float(DType dtype, Body&& body) {
  if (dtype == DType::kBF16)
    body(Type<bf16>{});
  else
    body(Type<float>{});
}

// x rounded to Y; a copy where Y is x's type.
template <class Y, class X>
MANTISSA_HD Y convert(X x) {
  if constexpr (sizeof(X) == sizeof(Y))
    return x;
  else
    return from_float<Y>(to_float(x));
}

// Rows of `cols` elements that are worth a thread of their own.
MANTISSA_HD int64_t row_grain(int64_t cols) { return cols < 8192 ? 8192 / (cols > 0 ? cols : 1) : 1; }

MANTISSA_HD float abs_of(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }

// *amax = max(*amax, value) among threads; both are >= 0, so their bit patterns order as they do.
MANTISSA_HD void raise_amax(float* amax, float value) {
  auto* bits = reinterpret_cast<uint32_t*>(amax);
  const uint32_t wanted = std::bit_cast<uint32_t>(value);
  uint32_t seen = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (seen < wanted &&
         !__atomic_compare_exchange_n(bits, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
