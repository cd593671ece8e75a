// mantissa_cuda.so: what the program finds of the GPU when it loads the module.
#include "ops/cuda/activation.h"
#include "ops/cuda/adamw.h"
#include "ops/cuda/attention/attention.h"
#include "ops/cuda/cached_attention.h"
#include "ops/cuda/elementwise.h"
#include "ops/cuda/embedding.h"
#include "ops/cuda/gemm/gemm.h"
#include "ops/cuda/libraries.h"
#include "ops/cuda/loss.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/rope.h"
#include "ops/cuda/table.h"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {
namespace {

constexpr CudaOps kOps{
    .swiglu_fwd = swiglu_fwd,
    .swiglu_bwd = swiglu_bwd,
    .gelu_fwd = gelu_fwd,
    .gelu_bwd = gelu_bwd,
    .adamw_update = adamw_update,
    .attention_fwd = attention_fwd,
    .attention_bwd = attention_bwd,
    .cached_attention = cached_attention,
    .add = add,
    .cast = cast,
    .bias_bwd = bias_bwd,
    .sum_of_squares = sum_of_squares,
    .first_nonfinite = first_nonfinite,
    .embedding_fwd = embedding_fwd,
    .embedding_bwd = embedding_bwd,
    .gemm = gemm,
    .explain_gemm = explain_gemm,
    .cross_entropy = cross_entropy,
    .rms_norm_fwd = rms_norm_fwd,
    .rms_norm_bwd = rms_norm_bwd,
    .add_rms_norm_fwd = add_rms_norm_fwd,
    .layer_norm_fwd = layer_norm_fwd,
    .layer_norm_bwd = layer_norm_bwd,
    .add_layer_norm_fwd = add_layer_norm_fwd,
    .rope_fwd = rope_fwd,
    .rope_bwd = rope_bwd,
    .qk_norm_rope_fwd = qk_norm_rope_fwd,
    .qk_norm_rope_bwd = qk_norm_rope_bwd,
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
