// Packing into the panels of tile.h.
#pragma once

#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/tile.h"

namespace mantissa {

MANTISSA_CPU_KERNEL(void pack_left_f32(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles,
                                       bool scaled, void* out, int64_t stride);
                    void pack_right_f32(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles,
                                        bool scaled, void* out, int64_t stride);
                    void pack_left_bf16(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles,
                                        bool scaled, void* out, int64_t stride);
                    void pack_right_bf16(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k,
                                         int64_t k_tiles, bool scaled, void* out, int64_t stride);)

}  // namespace mantissa
