// Sums and maxima among threads, always in the same order.
#pragma once

#include <cstdint>

namespace mantissa::cuda {

constexpr int kWarp = 32;

// Among kLanes neighbouring lanes, a power of two; every lane of the warp takes part and has the result.
template <int kLanes = kWarp>
__device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
__device__ __forceinline__ double lanes_sum(double v) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
__device__ __forceinline__ float lanes_max(float v) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

// A row of the block's threads, whole warps, is a team: it works on one row at a time and sums over it. At most 16
// warps a block.
class Team {
 public:
  static constexpr int kMaxWarps = 16;

  __device__ __forceinline__ int index() const { return threadIdx.y; }   // of this team in the block
  __device__ __forceinline__ int thread() const { return threadIdx.x; }  // in the team
  __device__ __forceinline__ int threads() const { return blockDim.x; }

  // v[k] = its sum over the team. Every thread of the team takes part.
  template <int kCount>
  __device__ __forceinline__ void sum(float (&v)[kCount]) {
    static_assert(kCount <= kMaxSums);
    __shared__ float slots[2][kMaxSums][kMaxWarps];
#pragma unroll
    for (int k = 0; k < kCount; ++k) v[k] = lanes_sum(v[k]);
    const int warps = threads() / kWarp;
    if (warps == 1) return;
    const int first = index() * warps;
    if (thread() % kWarp == 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) slots[parity_][k][first + thread() / kWarp] = v[k];
    }
    // One barrier a sum: the other half is overwritten only after all have passed the next one.
    asm volatile("bar.sync %0, %1;" ::"r"(index() + 1), "r"(threads()) : "memory");
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      v[k] = slots[parity_][k][first];
      for (int w = 1; w < warps; ++w) v[k] += slots[parity_][k][first + w];
    }
    parity_ ^= 1;
  }

 private:
  static constexpr int kMaxSums = 2;
  int parity_ = 0;
};

// *amax = max(*amax, v) over the block. Bit patterns of non-negative floats order as they do, so the result does not
// depend on timing. Every thread of the block takes part, once; amax is the same for all and may be null.
__device__ __forceinline__ void raise_amax(float* amax, float v) {
  if (!amax) return;
  __shared__ float largest[kWarp];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.y * blockDim.x / kWarp;
  v = lanes_max(v);
  if (thread % kWarp == 0) largest[thread / kWarp] = v;
  __syncthreads();
  if (thread >= kWarp) return;
  v = lanes_max(thread < warps ? largest[thread] : 0.0f);
  // It only grows: whoever reads a value that is not below its own need not write.
  if (thread == 0 && v > *reinterpret_cast<volatile float*>(amax))
    atomicMax(reinterpret_cast<int*>(amax), __float_as_int(v));
}
// |v| where it is larger; NaN is left out.
__device__ __forceinline__ float larger_magnitude(float amax, float v) { return fmaxf(amax, fabsf(v)); }

}  // namespace mantissa::cuda
