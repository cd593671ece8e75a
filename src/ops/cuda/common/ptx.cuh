// Instructions that CUDA C++ has no function for (PTX ISA): the exponential, barriers in shared memory that count
// arrivals and bytes, and copies of whole lines that report to them. Addresses in shared memory are 32-bit numbers.
#pragma once

#include <cstdint>

namespace mantissa::cuda {

// 2^x, off by 2^-22 of it at most; results below the normal range are 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A barrier is 8 bytes. One thread makes them, then publishes them once, before a barrier of all that wait.
__device__ __forceinline__ void make_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives; the phase is complete when so many bytes have come too.
__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the barrier's phase of this parity is complete. What was written before it, by threads and copies of this
// block, can be read.
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The same where other blocks of the cluster write here.
__device__ __forceinline__ void wait_barrier_of_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Every thread that read or wrote shared memory calls it before the barrier behind which copies or warpgroups' products
// use that memory again. Threads reach it by one way (PTX: the generic proxy), those by another (the async proxy): a
// barrier orders accesses of one way, of two only with this fence before it.
__device__ __forceinline__ void hand_to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// From global into shared memory; addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace mantissa::cuda
