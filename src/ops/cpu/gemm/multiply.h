// Micro-kernels of tile.h.
#pragma once

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/tile.h"

namespace mantissa {

// F32 panels with the instruction set's widest vectors; fused multiply-adds but in cpu_base.
MANTISSA_CPU_KERNEL(void multiply_f32(const TileProduct& product))

#if defined(MANTISSA_X86)
// BF16 panels. Both flush subnormal inputs and results to zero, as the instructions do.
void multiply_avx512bf16(const TileProduct& product);
void multiply_amx(const TileProduct& product);
void begin_amx();
void end_amx();
#endif

}  // namespace mantissa
