// activation.h on the GPU.
#pragma once

#include "ops/activation.h"

namespace mantissa::cuda {

void swiglu_fwd(Exec& exec, Operand& y, ConstTensor x);
void swiglu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x);
void gelu_fwd(Exec& exec, Operand& y, ConstTensor x);
void gelu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x);

}  // namespace mantissa::cuda
