// mantissa_cuda.so: what the program finds of the GPU when it loads the module.
#include "ops/cuda/libraries.h"
#include "ops/cuda/table.h"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {
namespace {

constexpr CudaOps kOps{
#define MANTISSA_OP(name) .name = name,
    MANTISSA_CUDA_OPS(MANTISSA_OP)
#undef MANTISSA_OP
};

Device* open(const DeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>(options, kOps);
  device->set_libraries(open_libraries(*device));
  return device.release();
}

constexpr CudaModule kModule{.count = count_devices, .open = open};

}  // namespace
}  // namespace mantissa::cuda

extern "C" __attribute__((visibility("default"))) const mantissa::CudaModule* mantissa_cuda_module() {
  return &mantissa::cuda::kModule;
}
