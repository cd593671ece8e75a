// Checks of a GemmDesc and its normal form.
#pragma once

#include "ops/cpu/gemm/problem.h"
#include "ops/gemm.h"

namespace mantissa {

// Throws Exit::kInternal where shapes, dtypes or formats disagree. Nothing is read at the addresses, which may be a
// device's; alpha is 1 and the arithmetic what the dtypes say.
GemmProblem describe(const GemmDesc& desc);
// describe(), then what the scales' values decide: per-tensor ones enter alpha, and where a product of code and block
// scale leaves BF16's normal range the arithmetic becomes FP32.
GemmProblem normalise(const GemmDesc& desc);

}  // namespace mantissa
