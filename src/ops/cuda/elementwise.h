// elementwise.h on the GPU.
#pragma once

#include "ops/elementwise.h"

namespace mantissa::cuda {

void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b);
void cast(Exec& exec, Tensor y, ConstTensor x);
void bias_bwd(Exec& exec, Tensor db, ConstTensor dy);
double sum_of_squares(Exec& exec, ConstTensor x);
int64_t first_nonfinite(Exec& exec, ConstTensor x);

}  // namespace mantissa::cuda
