// CUDA's return codes as errors of the house.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace mantissa::cuda {

// Exit::kMemory: no memory left. kUnavailable: no device, driver or kernel that fits. kDevice: the device itself, ECC
// or a link failed, or it is lost. kInternal: everything else, what a kernel did itself (a bad address, ...) among it.
Exit exit_of(cudaError_t status);

// Throws unless `status` is success. `what` names the call; `op`, if not null, the op that was enqueued last: kernels
// run behind the calls that enqueue them, so a failure shows in a later one.
void check_cuda(cudaError_t status, const char* what, const char* op = nullptr);

// A library's call failed: of the kind of CUDA's own error where there is one, else `otherwise`.
[[noreturn]] void fail_in_library(std::string message, Exit otherwise, const char* op = nullptr);

}  // namespace mantissa::cuda

#define MANTISSA_CUDA(call) ::mantissa::cuda::check_cuda((call), #call)
// With the last op of `device`.
#define MANTISSA_CUDA_ON(device, call) ::mantissa::cuda::check_cuda((call), #call, (device).last_op())
