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
  size_t shared_bytes = 0;  // dynamic; the kernel's limit is raised where it needs that
  bool follows = false;     // begins while the kernel before it ends; calls wait_for_last() before it reads anything
};

// In a kernel that `follows`: waits until the one before it has ended and its results can be read.
__device__ __forceinline__ void wait_for_last() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
// In the kernel before one that `follows`: once all blocks have called it or ended, that one may take free places.
__device__ __forceinline__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <class... Params, class... Args>
void launch(CudaDevice& device, const Grid& grid, void (*kernel)(Params...), Args... args) {
  if (grid.shared_bytes > 0) device.allow_shared(reinterpret_cast<const void*>(kernel), grid.shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = device.stream();
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = grid.follows && device.options().overlap && device.info().sm >= 90 ? 1 : 0;
  MANTISSA_CUDA_ON(device, cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

}  // namespace mantissa::cuda
