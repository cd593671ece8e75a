// The CUDA libraries that ops call, and what is kept for them.
#pragma once

#include <memory>

#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

// Opens the libraries on the device's stream. cuDNN may be absent: info().cudnn_absence says why.
std::unique_ptr<Libraries> open_libraries(CudaDevice& device);

}  // namespace mantissa::cuda
