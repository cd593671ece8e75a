// What producers on the GPU share of an Operand.
#pragma once

#include "ops/cuda/launch.cuh"
#include "tensor/quant.h"

namespace mantissa::cuda {

// Refuses quantized forms and sets the amax that the kernel then raises to zero.
inline void start_operand(const char* op, Exec& exec, const Operand& y) {
  if (y.rowwise || y.columnwise)
    fail(Exit::kUnavailable, "{}: quantized forms are not on the GPU in this version, expected a plain bf16 or f32 {}",
         op, y.high.shape);
  if (y.producer_amax) device_of(exec).zero(y.producer_amax, sizeof(float));
}

}  // namespace mantissa::cuda
