// Eight consecutive elements as floats: one 16-byte access for BF16, two for F32. Host-side choice of the element type.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "tensor/quant.h"
#include "tensor/tensor.h"

namespace mantissa::cuda {

using Bf16 = __nv_bfloat16;

constexpr int kWide = 8;
struct Wide {
  float x[kWide];
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

// p is aligned to 16 bytes.
__device__ __forceinline__ Wide load_wide(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ Wide load_wide(const Bf16* p) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Wide v;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.x[2 * i] = __uint_as_float(words[i] << 16);
    v.x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return v;
}
__device__ __forceinline__ void store_wide(float* p, const Wide& v) {
  *reinterpret_cast<float4*>(p) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(v.x[4], v.x[5], v.x[6], v.x[7]);
}
__device__ __forceinline__ void store_wide(Bf16* p, const Wide& v) {
  uint4 raw;
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(v.x[2 * i], v.x[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = raw;
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

// Calls f with the tensor's address as float* or Bf16* (const where the tensor is).
template <class F>
void visit_float(const Tensor& t, F&& f) {
  t.dtype == DType::kBF16 ? f(static_cast<Bf16*>(t.data)) : f(static_cast<float*>(t.data));
}
template <class F>
void visit_float(const ConstTensor& t, F&& f) {
  t.dtype == DType::kBF16 ? f(static_cast<const Bf16*>(t.data)) : f(static_cast<const float*>(t.data));
}

}  // namespace mantissa::cuda
