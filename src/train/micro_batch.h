// A micro-batch in host memory, and its copy on a GPU.
#pragma once

#include <vector>

#include "data/batch.h"
#include "model/staging.h"
#include "ops/attention.h"
#include "tensor/arena.h"
#include "tensor/step_state.h"

namespace mantissa {

// One micro-batch in host memory. On a GPU the engine copies it, so that it may change when a call returns.
struct MicroBatch {
  ConstTensor ids, labels, positions;  // [T] i32
  ConstTensor segments;                // [S+1] i32
};

// The tensors of a batch, which must outlive them.
MicroBatch view(const Batch& batch);

// What a micro-batch must be: tokens and documents as the memory was planned for, indices as the ops' tables have them.
struct BatchLimits {
  int64_t tokens = 0;
  int64_t sequence_length = 0;  // longest document, and positions below it
  int64_t max_segments = 0;
  int64_t vocab = 0;
};

// A micro-batch in a GPU's memory: one buffer, filled by one copy from pinned memory.
class DeviceBatch {
 public:
  void allocate(Arena& arena, const BatchLimits& limits);
  // Checks the values, which ops on a GPU do not look at (Exit::kInternal), and enqueues the copy. Labels may be
  // absent: none is learned.
  void upload(Device& device, const MicroBatch& batch, const StepState& state);

  ConstTensor ids, labels, positions;  // [T] i32
  Segments segments;                   // of the micro-batch that was uploaded last
  const StepState* state = nullptr;    // of the step that it belongs to

 private:
  // Micro-batches on their way; when all places are taken, the GPU is waited for.
  static constexpr int64_t kPlaces = 8;

  static constexpr int64_t kStateWords = 16;  // 64 bytes: what follows stays aligned
  static_assert(sizeof(StepState) <= kStateWords * sizeof(int32_t));

  int64_t stride() const { return ceil_div(limits_.tokens, 64) * 64; }  // between ids, labels, positions
  Tensor words(int64_t first, int64_t count) const { return buffer_.slice(kStateWords + first, count); }
  void check_values(const MicroBatch& batch) const;
  void fill(std::byte* place, const MicroBatch& batch, const StepState& state) const;

  BatchLimits limits_;
  Tensor buffer_;  // the step's state in 64 bytes; ids, labels, positions, segments
  PinnedBytes places_;
  int64_t next_ = 0;
};

}  // namespace mantissa
