// CPU kernels of ops/attention.h; arguments are checked by the caller.
#pragma once

#include "numerics/bf16.h"
#include "ops/attention.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/gemm/tile.h"

namespace mantissa {

// One attention over packed tokens; E is bf16 or float. Pointers that a direction does not use are null.
template <class E>
struct AttentionJob {
  const E* qkv = nullptr;             // [T, (N + 2 KV) D]
  const int32_t* segments = nullptr;  // [S+1]
  int64_t segment_count = 0;          // S
  int64_t tokens = 0;                 // T
  HeadLayout layout;
  float scale = 1;
  const TileKernel* kernel = nullptr;  // multiplies; kBF16 or kF32 panels for bf16, kF32 panels for float

  E* out = nullptr;         // [T, N D] written forward, read backward
  float* lse = nullptr;     // [N, T] written forward, read backward
  const E* dout = nullptr;  // [T, N D]
  E* dqkv = nullptr;        // [T, (N + 2 KV) D]
};

constexpr int64_t kAttentionMaxHeadDim = 256;  // what a thread's scratch holds

// False if the shared scratch cannot list the units of work.
MANTISSA_CPU_KERNEL(template <class E> bool attention_fwd(Exec& exec, const AttentionJob<E>& job);
                    template <class E> bool attention_bwd(Exec& exec, const AttentionJob<E>& job);)

}  // namespace mantissa
