// Causal attention inside segments of packed rows, grouped queries; softmax in FP32.
#pragma once

#include "ops/rope.h"
#include "tensor/exec.h"

namespace mantissa {

// segments: [S+1] i32, ascending token offsets of the packed documents; segments[0] = 0, segments[S] = T. S may vary from
// call to call; the tensor is the exact slice.
// out[T, N D] = softmax(scale q kᵀ, causal within the segment) v; lse[N, T] f32 = log of the softmax's denominator.
// qkv [T, (N + 2 KV) D] and out are BF16 or F32.
void attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, ConstTensor segments, const HeadLayout& layout,
                   float scale);
// dqkv like qkv, overwritten. Dao 2023 (FlashAttention-2), recomputing the probabilities from lse.
void attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                   ConstTensor segments, const HeadLayout& layout, float scale);

}  // namespace mantissa
