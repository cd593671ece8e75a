// rope.h on the GPU.
#pragma once

#include "ops/rope.h"

namespace mantissa::cuda {

void rope_fwd(Exec& exec, Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout);
void rope_bwd(Exec& exec, Tensor dx, ConstTensor dy, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout);
void qk_norm_rope_fwd(Exec& exec, Tensor y, Tensor rstd, ConstTensor x, ConstTensor q_weight, ConstTensor k_weight,
                      ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout, float eps);
void qk_norm_rope_bwd(Exec& exec, Tensor dx, Tensor dq_weight, Tensor dk_weight, ConstTensor dy, ConstTensor x,
                      ConstTensor rstd, ConstTensor q_weight, ConstTensor k_weight, ConstTensor cos_sin,
                      ConstTensor positions, const HeadLayout& layout);

}  // namespace mantissa::cuda
