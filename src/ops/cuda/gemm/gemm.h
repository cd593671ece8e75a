// ops/gemm.h on the GPU.
#pragma once

#include "ops/gemm.h"

namespace mantissa::cuda {

void gemm(Exec& exec, const GemmDesc& desc);
GemmChoice explain_gemm(const Exec& exec, const GemmDesc& desc);

}  // namespace mantissa::cuda
