// What the CPU and the operating system allow beyond the instruction sets of tensor/exec.h.
#pragma once

namespace mantissa {

struct CpuFeatures {
  bool avx512bf16 = false;
  bool amx_bf16 = false;         // and the kernel lets this process use the tiles
  const char* amx_absence = "";  // why not
};

// Found once; the first call asks the kernel for the permission to use AMX.
const CpuFeatures& cpu_features();

}  // namespace mantissa
