// Kernels beside a product, where cuBLASLt cannot do it in one.
#pragma once

#include "tensor/cuda/cuda_device.h"
#include "tensor/tensor.h"

namespace mantissa::cuda {

// to[i] = from[i] in to's dtype.
void copy_bias(CudaDevice& device, Tensor to, ConstTensor from);  // [N]
// c = product + bias (null: none) + c (if accumulate), rounded once.
void finish_product(CudaDevice& device, Tensor c, ConstTensor product, ConstTensor bias,
                    bool accumulate);  // [M,N], F32 product
}  // namespace mantissa::cuda
