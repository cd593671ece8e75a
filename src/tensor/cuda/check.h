// CUDA's return codes as errors.
#pragma once

#include <cuda_runtime_api.h>

namespace mantissa::cuda {

// Throws unless `status` is success: Exit::kMemory when memory is short, else Exit::kUnavailable; `what` names the
// call.
void check_cuda(cudaError_t status, const char* what);

}  // namespace mantissa::cuda

#define MANTISSA_CUDA(call) ::mantissa::cuda::check_cuda((call), #call)
