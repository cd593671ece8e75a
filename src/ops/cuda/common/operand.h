// What producers on the GPU share of an Operand.
#pragma once

#include "ops/cuda/launch.cuh"
#include "tensor/quant.h"

namespace mantissa::cuda {

// Sets the amax that the kernel then raises to zero. The quantized forms are filled behind it, from `high`.
inline void start_operand(Exec& exec, const Operand& y) {
  if (y.producer_amax) device_of(exec).zero(y.producer_amax, sizeof(float));
}

}  // namespace mantissa::cuda
