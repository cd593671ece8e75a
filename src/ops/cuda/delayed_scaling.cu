// A block moves one slot.
#include "ops/delayed_scaling.h"

#include "numerics/delayed_scale.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) update_scales_kernel(const DelayedSlots slots, int64_t begin) {
  const int64_t index = begin + blockIdx.x;
  DelayedSlot& slot = slots.slots[index];
  const int t = static_cast<int>(threadIdx.x);
  float* const h = slot.history;
  const float newest = h[0], scale = *slot.scale;
  if (newest == 0) {
    if (t == 0) *slot.next = scale;
    return;
  }
  float largest = fmaxf(0.0f, newest);  // fmaxf leaves NaN out
  for (int64_t base = 1; base < slot.length; base += kThreads) {
    const int64_t i = base + t;
    const float v = i < slot.length ? h[i * slot.stride] : 0.0f;
    largest = fmaxf(largest, v);
    __syncthreads();
    if (i > 1 && i < slot.length) h[(i - 1) * slot.stride] = v;
  }
  __shared__ float warps[kWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if (t % 32 == 0) warps[t / 32] = largest;
  __syncthreads();
  if (t != 0) return;
  for (const float v : warps) largest = fmaxf(largest, v);
  h[(slot.length - 1) * slot.stride] = newest;
  h[0] = 0;
  const float next = next_delayed_scale(scale, slot.most_recent ? newest : largest, slot.numerator);
  *slot.next = next;
  if (!is_nonfinite_amax(newest)) return;
  slot.fault = {newest, scale, next};
  atomicMax(slots.fault, static_cast<unsigned>(slots.count - index));
}

__global__ void __launch_bounds__(kThreads) publish_scales_kernel(const DelayedSlots slots) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < slots.count) *slots.slots[i].scale = *slots.slots[i].next;
}

}  // namespace

void update_scales(Exec& exec, const DelayedSlots& slots, int64_t begin, int64_t end) {
  const OpScope scope(exec, "update_scales");
  launch(device_of(exec), {.blocks = static_cast<unsigned>(end - begin), .threads = kThreads}, update_scales_kernel,
         slots, begin);
}

void publish_scales(Exec& exec, const DelayedSlots& slots) {
  const OpScope scope(exec, "publish_scales");
  launch(device_of(exec),
         {.blocks = static_cast<unsigned>((slots.count + kThreads - 1) / kThreads), .threads = kThreads},
         publish_scales_kernel, slots);
}

}  // namespace mantissa::cuda
