// Element types of tensors.
#pragma once

#include <cstdint>

namespace mantissa {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kE4M3,  // FP8 1-4-3, no Inf
  kE5M2,  // FP8 1-5-2
  kE2M1,  // FP4 1-2-1, two codes a byte, even index in the low nibble
  kE8M0,  // power-of-two block scale
  kU8,
  kI32,
  kI64,
};

constexpr int bits_of(DType dtype) {
  switch (dtype) {
    case DType::kE2M1:
      return 4;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kU8:
      return 8;
    case DType::kBF16:
    case DType::kF16:
      return 16;
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kI64:
      return 64;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kE2M1:
      return "e2m1";
    case DType::kE8M0:
      return "e8m0";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

// Bytes of `count` elements; FP4 counts are even.
constexpr int64_t bytes_of(DType dtype, int64_t count) { return (count * bits_of(dtype) + 7) / 8; }

}  // namespace mantissa
