// Eight elements of a parameter on their way through a step: where they lie, and what the step makes of them.
#pragma once

#include "ops/adamw.h"
#include "ops/cuda/adamw/rows.h"
#include "ops/cuda/common/philox_keys.cuh"
#include "ops/cuda/common/vec.cuh"

namespace mantissa::cuda::adamw {

constexpr unsigned kAll = 0xffffffffu;

// What the kernels need of a step beside the rows.
struct UpdateArgs {
  float grad_scale;
  double max_norm;
  AdamwFactors factors;
  float inverse_correction2;  // 1 / sqrt_correction2
  bool ordinary;              // the factors let the ranges of rounded.cuh hold
  PhiloxKeys keys;
  uint32_t step;
};

// Eight elements of one row; kVector: all there and aligned, else the first `count` of them.
template <bool kVector>
struct Place {
  const AdamwRow* row;
  int64_t first;

  __device__ __forceinline__ int count() const {
    return kVector ? kWide : static_cast<int>(max(int64_t{0}, min(int64_t{kWide}, row->n - first)));
  }
  template <class T>
  __device__ __forceinline__ Packed<T> fetch(const void* base) const {
    const T* p = static_cast<const T*>(base) + first;
    if constexpr (kVector)
      return load_packed(p);
    else
      return pack<T>(load_wide(p, count()));
  }
  template <class T>
  __device__ __forceinline__ void put(void* base, const Packed<T>& v) const {
    T* p = static_cast<T*>(base) + first;
    if constexpr (kVector)
      store_packed(p, v);
    else
      store_wide(p, widen(v), count());
  }
  __device__ __forceinline__ uint2 fetch_codes(const void* base) const {
    const uint8_t* p = static_cast<const uint8_t*>(base) + first;
    if constexpr (kVector) return *reinterpret_cast<const uint2*>(p);
    uint32_t words[2] = {};
#pragma unroll
    for (int k = 0; k < kWide; ++k)
      if (k < count()) words[k / 4] |= uint32_t{p[k]} << k % 4 * 8;
    return {words[0], words[1]};
  }
  __device__ __forceinline__ void put_codes(void* base, const uint2& codes) const {
    uint8_t* p = static_cast<uint8_t*>(base) + first;
    if constexpr (kVector) {
      *reinterpret_cast<uint2*>(p) = codes;
    } else {
#pragma unroll
      for (int k = 0; k < kWide; ++k)
        if (k < count()) p[k] = static_cast<uint8_t>((k < 4 ? codes.x : codes.y) >> k % 4 * 8);
    }
  }
};

// A step of eight elements. The largest magnitudes leave NaN out.
struct Step {
  Wide m, v, roots, after;
  float m_most, root_most;
  uint32_t wanted;  // a bit for each element with an update that is not zero
  bool ordinary;    // every operand within the ranges of rounded.cuh: the exact forms are not needed
};

}  // namespace mantissa::cuda::adamw
