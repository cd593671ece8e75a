// SwiGLU and GELU; FP32 inside. Outputs are operands: their quantized forms are filled as docs/numerics.md 7 says.
#pragma once

#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa {

// y[T,F] = silu(gate) * up, x = [gate | up] [T,2F]. Shazeer 2020.
void swiglu_fwd(Exec& exec, Operand& y, ConstTensor x);
// dx[T,2F] from dy[T,F].
void swiglu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x);

// Tanh approximation (gelu_new). Hendrycks and Gimpel 2016.
void gelu_fwd(Exec& exec, Operand& y, ConstTensor x);
void gelu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x);

}  // namespace mantissa
