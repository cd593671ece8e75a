#pragma once
#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/problem.h"
namespace mantissa {
MANTISSA_CPU_KERNEL(void gemm_plain(Exec& exec, const GemmProblem& p))
}
