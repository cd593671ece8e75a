// What a run keeps from one step to the next, as one list: a snapshot of it, written into a fresh engine of the same
// config, goes on in the same bits.
#pragma once

#include <functional>
#include <string>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace mantissa {

// One entry: a view of the memory in use, to be read or written between two steps.
struct StateTensor {
  std::string name;  // "PURPOSE/OWNER": "masters/layers.3.mlp.up.weight", "scaling/head.scale_fwd", "engine/updates"
  Tensor tensor;
  Device* device = nullptr;  // whose memory it is in; null: the host's
};
using StateVisitor = std::function<void(const StateTensor&)>;

// The tensor's bytes to host memory, and from there.
void read_state(const StateTensor& state, std::byte* to);
void write_state(const StateTensor& state, const std::byte* from);

}  // namespace mantissa
