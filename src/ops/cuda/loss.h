// Kernels of loss.h.
#pragma once

#include "ops/loss.h"

namespace mantissa::cuda {

void cross_entropy(Exec& exec, LossSums* sums, Tensor logits, int64_t vocab, ConstTensor labels,
                   const float* grad_scale, float z_weight);

}  // namespace mantissa::cuda
