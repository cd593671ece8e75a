// The GPU's ops by one list: a line makes an op's pointer, its declaration in mantissa::cuda and its place in the
// module's table. ops/x.cpp checks the arguments, then calls the one with the same signature and contract through
// exec.device()->ops(). Every address in the arguments is the device's, unless the contract says host.
#pragma once

#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/delayed_scaling.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/quantize.h"
#include "ops/rope.h"

// clang-format off
#define MANTISSA_CUDA_OPS(OP)                                                                                          \
  OP(swiglu_fwd)                                                                                                       \
  OP(swiglu_bwd)                                                                                                       \
  OP(gelu_fwd)                                                                                                         \
  OP(gelu_bwd)                                                                                                         \
  OP(attention_fwd)                                                                                                    \
  OP(attention_bwd)                                                                                                    \
  OP(cached_attention)                                                                                                 \
  OP(adamw_update)                                                                                                     \
  OP(add)                                                                                                              \
  OP(cast)                                                                                                             \
  OP(bias_bwd)                                                                                                         \
  OP(sum_of_squares)                                                                                                   \
  OP(first_nonfinite)                                                                                                  \
  OP(embedding_fwd)                                                                                                    \
  OP(embedding_bwd)                                                                                                    \
  OP(gemm)                                                                                                             \
  OP(explain_gemm)                                                                                                     \
  OP(cross_entropy)                                                                                                    \
  OP(rms_norm_fwd)                                                                                                     \
  OP(rms_norm_bwd)                                                                                                     \
  OP(add_rms_norm_fwd)                                                                                                 \
  OP(layer_norm_fwd)                                                                                                   \
  OP(layer_norm_bwd)                                                                                                   \
  OP(add_layer_norm_fwd)                                                                                               \
  OP(quantize)                                                                                                         \
  OP(quantize_form)                                                                                                    \
  OP(dequantize)                                                                                                       \
  OP(quantization_error)                                                                                               \
  OP(update_scales)                                                                                                    \
  OP(publish_scales)                                                                                                   \
  OP(rope_fwd)                                                                                                         \
  OP(rope_bwd)                                                                                                         \
  OP(qk_norm_rope_fwd)                                                                                                 \
  OP(qk_norm_rope_bwd)
// clang-format on

namespace mantissa {

namespace cuda {
#define MANTISSA_OP(name) decltype(mantissa::name) name;
MANTISSA_CUDA_OPS(MANTISSA_OP)
#undef MANTISSA_OP
}  // namespace cuda

struct CudaOps {
#define MANTISSA_OP(name) decltype(&mantissa::name) name;
  MANTISSA_CUDA_OPS(MANTISSA_OP)
#undef MANTISSA_OP
};

}  // namespace mantissa
