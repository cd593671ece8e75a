// CPU kernels are compiled once per instruction set from the same sources (CMake sets MANTISSA_ISA_NS). A kernel is
// declared in all namespaces by MANTISSA_CPU_KERNEL and called through MANTISSA_CPU_CALL.
#pragma once

#include "tensor/exec.h"

#if defined(MANTISSA_X86)
#define MANTISSA_CPU_KERNEL(...) \
  namespace cpu_base {           \
  __VA_ARGS__;                   \
  }                              \
  namespace cpu_avx2 {           \
  __VA_ARGS__;                   \
  }                              \
  namespace cpu_avx512 {         \
  __VA_ARGS__;                   \
  }
#define MANTISSA_CPU_CALL(exec, kernel, ...)                      \
  ((exec).isa() == Isa::kAvx512 ? cpu_avx512::kernel(__VA_ARGS__) \
   : (exec).isa() == Isa::kAvx2 ? cpu_avx2::kernel(__VA_ARGS__)   \
                                : cpu_base::kernel(__VA_ARGS__))
#else
#define MANTISSA_CPU_KERNEL(...) \
  namespace cpu_base {           \
  __VA_ARGS__;                   \
  }
#define MANTISSA_CPU_CALL(exec, kernel, ...) cpu_base::kernel(__VA_ARGS__)
#endif
