// CPU kernels of norm.h.
#pragma once

#include "ops/cpu/dispatch.h"

namespace mantissa {

struct NormFwd {
  int64_t rows, cols;
  DType x_type, y_type;
  void* y;             // [T,H] y_type
  float* mean;         // [T], LayerNorm only
  float* rstd;         // [T]
  void* h;             // [T,H] x_type: x + r, with r only
  const void* x;       // [T,H] x_type
  const void* r;       // [T,H] x_type or null
  const void* weight;  // [H] x_type
  const void* bias;    // [H] x_type, LayerNorm only
  float eps;
  float* amax;  // [1] or null
};

struct NormBwd {
  int64_t rows, cols;
  int64_t block_rows, blocks;
  DType type, weight_grad_type;
  void* dx;               // [T,H]
  void* dweight;          // [H] weight_grad_type
  void* dbias;            // [H] weight_grad_type, LayerNorm only
  const void* dy;         // [T,H]
  const void* x;          // [T,H]
  const void* weight;     // [H]
  const float* mean;      // [T], LayerNorm only
  const float* rstd;      // [T]
  const void* dresidual;  // [T,H] or null
  float* partial;         // [blocks, 2, H] scratch; [blocks, H] without dbias
};

MANTISSA_CPU_KERNEL(void rms_norm_fwd(const NormFwd& a); void layer_norm_fwd(const NormFwd& a);
                    void rms_norm_bwd(const NormBwd& a); void layer_norm_bwd(const NormBwd& a))

}  // namespace mantissa
