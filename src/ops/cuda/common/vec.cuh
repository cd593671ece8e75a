// Eight consecutive elements: as they lie in memory (Packed: one 16-byte access for BF16, two for F32), and as floats
// (Wide). Host-side choice of the element type.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <initializer_list>

#include "base/error.h"
#include "tensor/quant.h"
#include "tensor/tensor.h"

namespace mantissa::cuda {

using Bf16 = __nv_bfloat16;

constexpr int kWide = 8;
struct Wide {
  float x[kWide];
};

template <class T>
struct Packed;
template <>
struct Packed<Bf16> {
  uint4 raw;
};
template <>
struct Packed<float> {
  float4 low, high;
};

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(Bf16 x) { return __bfloat162float(x); }
template <class T>
__device__ __forceinline__ T from_f32(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return __float2bfloat16_rn(x);
}

// Memory to registers and back; p is aligned to 16 bytes.
__device__ __forceinline__ Packed<Bf16> load_packed(const Bf16* p) { return {*reinterpret_cast<const uint4*>(p)}; }
__device__ __forceinline__ Packed<float> load_packed(const float* p) {
  return {*reinterpret_cast<const float4*>(p), *reinterpret_cast<const float4*>(p + 4)};
}
__device__ __forceinline__ void store_packed(Bf16* p, const Packed<Bf16>& v) { *reinterpret_cast<uint4*>(p) = v.raw; }
__device__ __forceinline__ void store_packed(float* p, const Packed<float>& v) {
  *reinterpret_cast<float4*>(p) = v.low;
  *reinterpret_cast<float4*>(p + 4) = v.high;
}

__device__ __forceinline__ Wide widen(const Packed<float>& v) {
  return {{v.low.x, v.low.y, v.low.z, v.low.w, v.high.x, v.high.y, v.high.z, v.high.w}};
}
__device__ __forceinline__ Wide widen(const Packed<Bf16>& v) {
  const uint32_t words[4] = {v.raw.x, v.raw.y, v.raw.z, v.raw.w};
  Wide w;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    w.x[2 * i] = __uint_as_float(words[i] << 16);
    w.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return w;
}
// Rounded to T.
template <class T>
__device__ __forceinline__ Packed<T> pack(const Wide& v) {
  if constexpr (sizeof(T) == 4) {
    return {make_float4(v.x[0], v.x[1], v.x[2], v.x[3]), make_float4(v.x[4], v.x[5], v.x[6], v.x[7])};
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(v.x[2 * i], v.x[2 * i + 1]);
      words[i] = reinterpret_cast<const uint32_t&>(pair);
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }
}

// p is aligned to 16 bytes.
template <class T>
__device__ __forceinline__ Wide load_wide(const T* p) {
  return widen(load_packed(p));
}
template <class T>
__device__ __forceinline__ void store_wide(T* p, const Wide& v) {
  store_packed(p, pack<T>(v));
}

// The first `count` of eight, where p need not be aligned unless count is kWide and p is.
template <class T>
__device__ __forceinline__ Wide load_wide(const T* p, int count) {
  if (count == kWide && reinterpret_cast<uintptr_t>(p) % 16 == 0) return load_wide(p);
  Wide v{};
#pragma unroll
  for (int i = 0; i < kWide; ++i)
    if (i < count) v.x[i] = to_f32(p[i]);
  return v;
}
template <class T>
__device__ __forceinline__ void store_wide(T* p, const Wide& v, int count) {
  if (count == kWide && reinterpret_cast<uintptr_t>(p) % 16 == 0) return store_wide(p, v);
#pragma unroll
  for (int i = 0; i < kWide; ++i)
    if (i < count) p[i] = from_f32<T>(v.x[i]);
}

// The same where the host has already found out that every group of the tensor is whole and aligned. Loads without a
// branch between them are in flight together.
template <bool kAligned, class T>
__device__ __forceinline__ Wide load_group(const T* p, int count) {
  if constexpr (kAligned)
    return load_wide(p);
  else
    return load_wide(p, count);
}
template <bool kAligned, class T>
__device__ __forceinline__ void store_group(T* p, const Wide& v, int count) {
  if constexpr (kAligned)
    store_wide(p, v);
  else
    store_wide(p, v, count);
}

// Every row of `cols` elements is whole groups, and every address (null ones too) is aligned to 16 bytes.
inline bool whole_groups(int64_t cols, std::initializer_list<const void*> addresses) {
  bool aligned = cols % kWide == 0;
  for (const void* p : addresses) aligned = aligned && reinterpret_cast<uintptr_t>(p) % 16 == 0;
  return aligned;
}

// Calls f with an element, Bf16 or float; kernels are made for no other (Exit::kInternal).
template <class F>
void with_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(Bf16{});
    case DType::kF16:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE2M1:
    case DType::kE8M0:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  fail(Exit::kInternal, "a kernel for f32 and bf16 is given {}", name_of(dtype));
}
// The same with the tensor's address as float* or Bf16* (const where the tensor is).
template <class F>
void visit_float(const Tensor& t, F&& f) {
  with_float(t.dtype, [&]<class T>(T) { f(static_cast<T*>(t.data)); });
}
template <class F>
void visit_float(const ConstTensor& t, F&& f) {
  with_float(t.dtype, [&]<class T>(T) { f(static_cast<const T*>(t.data)); });
}

}  // namespace mantissa::cuda
