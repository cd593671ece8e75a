// norm.h on the GPU.
#pragma once

#include "ops/norm.h"

namespace mantissa::cuda {

void rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, ConstTensor x, ConstTensor weight, float eps);
void rms_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, ConstTensor dy, ConstTensor x, ConstTensor weight,
                  ConstTensor rstd, ConstTensor dresidual);
void add_rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r, ConstTensor weight,
                      float eps);
void layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, ConstTensor x, ConstTensor weight,
                    ConstTensor bias, float eps);
void layer_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, Tensor dbias, ConstTensor dy, ConstTensor x,
                    ConstTensor weight, ConstTensor mean, ConstTensor rstd, ConstTensor dresidual);
void add_layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r,
                        ConstTensor weight, ConstTensor bias, float eps);

}  // namespace mantissa::cuda
