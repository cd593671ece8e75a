// elementwise.h on the GPU.
#pragma once

#include "ops/elementwise.h"

namespace mantissa::cuda {

void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b);
void cast(Exec& exec, Tensor y, ConstTensor x);

}  // namespace mantissa::cuda
