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
// alpha[0] = amax_a * amax_b / 2688², what a product of NVFP4 values lacks; alpha[1] = beta. All on the device but
// beta.
void nvfp4_alpha(CudaDevice& device, float* alpha, const float* amax_a, const float* amax_b, float beta);

}  // namespace mantissa::cuda
