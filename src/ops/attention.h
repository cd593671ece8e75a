// Causal attention inside segments of packed rows, grouped queries; softmax in FP32.
#pragma once

#include "ops/rope.h"
#include "tensor/exec.h"

namespace mantissa {

// The documents of packed rows.
struct Segments {
  ConstTensor
      offsets;  // [S+1] i32, ascending: offsets[0] = 0, offsets[S] = T; a segment may be empty. Checked on a CPU
  int64_t longest = 0;  // no segment is longer; 0: T. The host's knowledge, as `uniform`
  int64_t uniform = 0;  // every segment has this length (it divides T, S = T / uniform); 0: they differ
};

// out[T, N D] = softmax(scale q kᵀ, causal within the segment) v; lse[N, T] f32 = log of the softmax's denominator, on
// a GPU in the order of whoever computes it: a backward pass gets its forward's, of the same segments. qkv
// [T, (N + 2 KV) D] and out are BF16 or F32. On a GPU S may exceed the documents: the slots behind them are empty, so
// that one captured graph serves every micro-batch; MANTISSA_ATTENTION=cudnn or own forces who computes it.
void attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                   const HeadLayout& layout, float scale);
// dqkv like qkv, overwritten. Dao 2023 (FlashAttention-2), recomputing the probabilities from lse.
void attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                   const Segments& segments, const HeadLayout& layout, float scale);
// GPU scratch that the two take at most, for any S = `segments` documents of at most `longest` tokens (0: T).
int64_t attention_scratch_bytes(DType dtype, int64_t tokens, int64_t longest, int64_t segments,
                                const HeadLayout& layout);

}  // namespace mantissa
