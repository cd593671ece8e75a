// The CUDA libraries that ops call, and what is kept for them.
#pragma once

#include <memory>

#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

class Cudnn;  // attention/cudnn.h
class Gemms;  // gemm/gemms.h

// Opens the libraries on the device's stream. cuDNN may be absent: info().cudnn_absence says why.
std::unique_ptr<Libraries> open_libraries(CudaDevice& device);

Gemms& gemms_of(const CudaDevice& device);
// Null where cuDNN is absent.
Cudnn* cudnn_of(const CudaDevice& device);

}  // namespace mantissa::cuda
