// Small elementwise and reduction ops.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

// y = a + b, rounded to y's dtype; y may be a or b.
void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b);
// y = x in y's dtype (F32 <-> BF16, to nearest even).
void cast(Exec& exec, Tensor y, ConstTensor x);
// db[N] += column sums of dy[T,N], summed in FP32 in row-block order, rounded once.
void bias_bwd(Exec& exec, Tensor db, ConstTensor dy);
// The two below read their result back: on a GPU they wait for it, and cannot be captured.
// Sum of squares in double. Non-finite input gives a non-finite result.
double sum_of_squares(Exec& exec, ConstTensor x);
// Index of the first NaN or Inf, or -1.
int64_t first_nonfinite(Exec& exec, ConstTensor x);

}  // namespace mantissa
