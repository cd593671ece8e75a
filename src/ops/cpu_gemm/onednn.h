// oneDNN as a GEMM candidate: a module beside the executable, loaded when first asked for and never required.
#pragma once

#include <string>

#include "ops/cpu/gemm/problem.h"

namespace mantissa {

// The module's only function: c = a · bᵀ + bias + c_old if `accumulate`, plain sides of one dtype. Without `execute` it
// only makes the primitive, and memory is not read. Returns null or what oneDNN says against it; the text lives until
// the thread's next call.
using OnednnGemm = const char* (*)(const GemmProblem* problem, bool execute);
constexpr const char* kOnednnFile = "mantissa_onednn.so";
constexpr const char* kOnednnSymbol = "mantissa_onednn_gemm";

struct OnednnModule {
  OnednnGemm gemm = nullptr;
  std::string absence;  // why it is not loaded
};

// Loaded once, from the folder of the executable.
const OnednnModule& onednn_module();

}  // namespace mantissa
