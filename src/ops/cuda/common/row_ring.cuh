// Rows on their way from memory, a few ahead of those who work on them.
#pragma once

#include <cstdint>

namespace mantissa::cuda {

// kStages slots of shared memory, each for a row of up to three tensors, and an mbarrier a slot. One thread starts the
// copies (PTX ISA, cp.async.bulk), whoever reads them waits. Rows and addresses are multiples of 16 bytes.
template <int kStages>
class RowRing {
 public:
  __device__ __forceinline__ RowRing(char* slots, uint64_t* full, int row_bytes, int tensors)
      : slots_(slots), full_(address(full)), row_bytes_(row_bytes), tensors_(tensors) {}

  // One thread, before a barrier of all that wait.
  __device__ __forceinline__ void prepare() const {
#pragma unroll
    for (int s = 0; s < kStages; ++s) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(full_ + 8 * s) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  // One thread, once all have read what the slot held. b and c: with two, three tensors.
  __device__ __forceinline__ void fetch(int slot, const void* a, const void* b, const void* c) const {
    const uint32_t full = full_ + 8 * slot, to = address(slots_ + slot * tensors_ * row_bytes_);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(tensors_ * row_bytes_)
                 : "memory");
    copy(to, a, full);
    copy(to + row_bytes_, b, full);
    if (tensors_ > 2) copy(to + 2 * row_bytes_, c, full);
  }

  // The slot's rows, one behind the other. The parity of a slot's n-th filling is n mod 2.
  __device__ __forceinline__ const char* wait(int slot, uint32_t parity) const {
    asm volatile(
        "{\n.reg .pred there;\nagain:\nmbarrier.try_wait.parity.shared.b64 there, [%0], %1;\n@!there bra again;\n}" ::
            "r"(full_ + 8 * slot),
        "r"(parity)
        : "memory");
    return slots_ + slot * tensors_ * row_bytes_;
  }

 private:
  __device__ __forceinline__ static uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
  __device__ __forceinline__ void copy(uint32_t to, const void* from, uint32_t full) const {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(row_bytes_), "r"(full)
                 : "memory");
  }

  char* slots_;
  uint32_t full_;
  int row_bytes_, tensors_;
};

}  // namespace mantissa::cuda
