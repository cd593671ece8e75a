// CPU kernels of activation.h.
#pragma once

#include "ops/cpu/dispatch.h"

namespace mantissa {

struct ActivationFwd {
  int64_t rows, cols;  // T, F
  DType x_type, y_type;
  void* y;        // [T,F] y_type
  const void* x;  // [T,2F] swiglu, [T,F] gelu; x_type
  float* amax;    // [1] or null: of the FP32 values
};

struct ActivationBwd {
  int64_t rows, cols;
  DType x_type, dx_type;
  void* dx;        // as x, dx_type
  const void* dy;  // [T,F] x_type
  const void* x;
  float* amax;
};

MANTISSA_CPU_KERNEL(void swiglu_fwd(const ActivationFwd& a); void swiglu_bwd(const ActivationBwd& a);
                    void gelu_fwd(const ActivationFwd& a); void gelu_bwd(const ActivationBwd& a))

}  // namespace mantissa
