// New values on their way into parameters: straight into host memory, or through pinned memory to a GPU, where one half
// is filled while the other is copied.
#pragma once

#include <functional>

#include "model/param.h"
#include "model/staging.h"

namespace mantissa {

class ParamWriter {
 public:
  // `most`: elements that are written at a time at most; bounds the pinned memory.
  explicit ParamWriter(ParamStore& params, int64_t most = INT64_MAX);
  // Waits for the copies.
  ~ParamWriter();
  ParamWriter(const ParamWriter&) = delete;
  ParamWriter& operator=(const ParamWriter&) = delete;

  // Calls fill(first, count) for pieces that cover elements [begin, begin + n) of parameter `id`, each a multiple of
  // `unit` elements but for the last; fill hands every element of its piece to put(), from any thread.
  void write(int id, int64_t begin, int64_t n, int64_t unit, const std::function<void(int64_t, int64_t)>& fill);
  // FP32 values of elements [at, at + n) of the parameter: into the compute copy, and the master where there is one.
  void put(int64_t at, const float* values, int64_t n) const;

 private:
  // Elements of a piece: some megabytes, so that a copy is at the bus' speed and the first one starts soon.
  static constexpr int64_t kPiece = int64_t{4} << 20;

  void send(int64_t first, int64_t count);

  ParamStore& params_;
  Device* device_;
  int64_t piece_ = 0, half_bytes_ = 0;
  PinnedBytes halves_;
  int half_ = 0;
  // Where put() stores: tensors whose element 0 is element `first_` of the parameter.
  Tensor weight_, master_;
  int64_t first_ = 0;
  int id_ = -1;
};

}  // namespace mantissa
