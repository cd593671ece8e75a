// Bodies of tensor.h that need the element types.
#pragma once

#include <type_traits>

#include "numerics/bf16.h"
#include "tensor/tensor.h"

namespace mantissa {

template <class T>
constexpr bool holds(DType dtype) {
  if constexpr (std::is_same_v<T, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<T, bf16>) return dtype == DType::kBF16;
  if constexpr (std::is_same_v<T, uint16_t>) return bits_of(dtype) == 16;
  if constexpr (std::is_same_v<T, uint8_t>) return bits_of(dtype) <= 8;
  if constexpr (std::is_same_v<T, int32_t>) return dtype == DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::kI64;
  return false;
}

template <class Void>
BasicTensor<Void> BasicTensor<Void>::slice(int64_t begin, int64_t n) const {
  check(shape.rank() >= 1 && begin >= 0 && begin + n <= shape[0], "slice [{}, {}) of {}", begin, begin + n, *this);
  int64_t row = 1;
  Shape to = shape;
  switch (shape.rank()) {
    case 1:
      to = {n};
      break;
    case 2:
      row = shape[1], to = {n, shape[1]};
      break;
    case 3:
      row = shape[1] * shape[2], to = {n, shape[1], shape[2]};
      break;
    default:
      row = shape[1] * shape[2] * shape[3], to = {n, shape[1], shape[2], shape[3]};
      break;
  }
  using Byte = std::conditional_t<std::is_const_v<Void>, const uint8_t, uint8_t>;
  // In the counting pass of an arena a tensor has no address yet.
  return {data ? static_cast<Byte*>(data) + bytes_of(dtype, begin * row) : nullptr, dtype, to};
}

}  // namespace mantissa
