#include "ops/cpu_gemm/cpu_features.h"

#if defined(MANTISSA_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mantissa {
namespace {

#if defined(MANTISSA_X86)
// Linux: Documentation/arch/x86/xstate.rst.
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA

// XCR0: state that the operating system saves. Bits 17 and 18 are the tile configuration and data.
unsigned saved_state() {
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

CpuFeatures find() {
  CpuFeatures f;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))  // OSXSAVE
    return f.amx_absence = "the CPU has no AMX", f;
  const unsigned saved = saved_state();
  const bool zmm_saved = (saved & 0xe6u) == 0xe6u;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx512bf16 = zmm_saved && (a & (1u << 5));
  const bool has_tiles = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & (1u << 22)) && (d & (1u << 24));
  if (!has_tiles)
    f.amx_absence = "the CPU has no AMX-BF16";
  else if ((saved & 0x60000u) != 0x60000u)
    f.amx_absence = "the operating system does not save AMX tiles";
  else if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    f.amx_absence = "the kernel refuses this process the AMX tiles";
  else
    f.amx_bf16 = true;
  return f;
}
#else
CpuFeatures find() { return {false, false, "not an x86 CPU"}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = find();
  return features;
}

}  // namespace mantissa
