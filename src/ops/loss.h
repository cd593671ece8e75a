// Softmax cross-entropy over rows of logits.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

struct LossSums {
  double loss = 0;    // sum of -log p(label) over valid tokens
  double z = 0;       // sum of lse² over valid tokens
  int64_t valid = 0;  // tokens whose label is not -100
};

// Adds to `sums`. With a gradient (grad_scale != 0) logits[R,V] (BF16 or F32) are overwritten by
// grad_scale * d(sum loss + z_weight * sum lse²)/dlogits; rows with label -100 get zeros. labels [R] i32.
// z-loss: Chowdhery et al. 2022 (PaLM).
void cross_entropy(Exec& exec, LossSums& sums, Tensor logits, ConstTensor labels, float grad_scale, float z_weight);

}  // namespace mantissa
