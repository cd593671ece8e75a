// Rows on their way from memory, a few ahead of those who work on them.
#pragma once

#include "ops/cuda/common/ptx.cuh"

namespace mantissa::cuda {

// kStages slots of shared memory, each for a row of up to three tensors, and an mbarrier a slot. One thread starts the
// copies (ptx.cuh), whoever reads them waits. Rows and addresses are multiples of 16 bytes.
template <int kStages>
class RowRing {
 public:
  __device__ __forceinline__ RowRing(char* slots, uint64_t* full, int row_bytes, int tensors)
      : slots_(slots), full_(shared_address(full)), row_bytes_(row_bytes), tensors_(tensors) {}

  // One thread, before a barrier of all that wait.
  __device__ __forceinline__ void prepare() const {
#pragma unroll
    for (int s = 0; s < kStages; ++s) make_barrier(full_ + 8 * s, 1);
    publish_barriers();
  }

  // One thread, behind a barrier of all that read what the slot held; each called hand_to_async() between its last read
  // and that barrier. b and c: with two, three tensors.
  __device__ __forceinline__ void fetch(int slot, const void* a, const void* b, const void* c) const {
    const uint32_t full = full_ + 8 * slot, to = shared_address(slots_ + slot * tensors_ * row_bytes_);
    expect_bytes(full, tensors_ * row_bytes_);
    copy_bulk(to, a, row_bytes_, full);
    copy_bulk(to + row_bytes_, b, row_bytes_, full);
    if (tensors_ > 2) copy_bulk(to + 2 * row_bytes_, c, row_bytes_, full);
  }

  // The slot's rows, one behind the other. The parity of a slot's n-th filling is n mod 2.
  __device__ __forceinline__ const char* wait(int slot, uint32_t parity) const {
    wait_barrier(full_ + 8 * slot, parity);
    return slots_ + slot * tensors_ * row_bytes_;
  }

 private:
  char* slots_;
  uint32_t full_;
  int row_bytes_, tensors_;
};

}  // namespace mantissa::cuda
