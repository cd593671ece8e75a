// The one way to launch a kernel, and the name under which an op shows in profiles.
#pragma once

#include <cuda_runtime.h>

#include "tensor/cuda/check.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/exec.h"

namespace mantissa::cuda {

// The device of an Exec that runs on one.
inline CudaDevice& device_of(const Exec& exec) { return static_cast<CudaDevice&>(*exec.device()); }

// Every op opens one: an NVTX range, and a row of the profile while one is open. Ops do not nest.
class OpScope {
 public:
  OpScope(const Exec& exec, const char* op) : device_(device_of(exec)) { device_.mark_begin(op); }
  ~OpScope() { device_.mark_end(); }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  CudaDevice& device_;
};

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic; beyond 48 KiB the kernel's limit is raised
};

template <class... Params, class... Args>
void launch(CudaDevice& device, const Grid& grid, void (*kernel)(Params...), Args... args) {
  if (grid.shared_bytes > 48 * 1024)
    MANTISSA_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(grid.shared_bytes)));
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = device.stream();
  MANTISSA_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

}  // namespace mantissa::cuda
