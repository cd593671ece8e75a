// Softmax cross-entropy over rows of logits.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

struct LossSums {
  double loss = 0;    // sum of -log p(label) over valid tokens
  double z = 0;       // sum of lse² over valid tokens
  int64_t valid = 0;  // tokens whose label is not -100
};

// Adds to `sums` (in exec's memory). With `state` (in exec's memory; null: losses alone) logits[R,P] (BF16 or F32) are
// overwritten by state->grad_scale * d(sum loss + state->z_weight * sum lse²)/dlogits; rows with label -100 and the
// columns from `vocab` to P, which pad the matrix and take no part, get zeros. labels [R] i32, -100 or 0 to vocab - 1:
// checked on a CPU, on a GPU the caller sees to it. z-loss: Chowdhery et al. 2022 (PaLM).
void cross_entropy(Exec& exec, LossSums* sums, Tensor logits, int64_t vocab, ConstTensor labels,
                   const StepState* state);
// GPU scratch that cross_entropy takes.
int64_t cross_entropy_scratch_bytes(int64_t rows);

}  // namespace mantissa
