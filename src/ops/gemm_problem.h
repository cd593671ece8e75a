// Checks of a GemmDesc and its normal form.
#pragma once

#include "ops/cpu/gemm/problem.h"
#include "ops/gemm.h"

namespace mantissa {

// Throws Exit::kInternal where shapes or dtypes disagree. Reads scales: per-tensor ones enter alpha, and where a product of
// code and block scale leaves BF16's normal range the arithmetic becomes FP32.
GemmProblem normalise(const GemmDesc& desc);

}  // namespace mantissa
