#include "tensor/state.h"

#include <cstring>

namespace mantissa {

void read_state(const StateTensor& state, std::byte* to) {
  const Tensor& t = state.tensor;
  if (state.device)
    state.device->copy_out(to, t.data, t.bytes());
  else
    std::memcpy(to, t.data, static_cast<size_t>(t.bytes()));
}

void write_state(const StateTensor& state, const std::byte* from) {
  const Tensor& t = state.tensor;
  if (state.device)
    state.device->copy_in(t.data, from, t.bytes());
  else
    std::memcpy(t.data, from, static_cast<size_t>(t.bytes()));
}

}  // namespace mantissa
