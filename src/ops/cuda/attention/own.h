// The project's own attention (Dao 2023, FlashAttention-2): no atomics, every sum in one order that the shapes alone
// fix, so two runs agree in every bit. BF16 on the tensor cores with FP32 sums and softmax, F32 in FP32 throughout. Any
// head_dim up to 256, packed documents of any lengths, empty slots behind them.
#pragma once

#include "ops/attention.h"

namespace mantissa::cuda {

// As attention_fwd and attention_bwd of ops/attention.h, for arguments that those have checked.
void own_attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                       const HeadLayout& layout, float scale);
void own_attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                       const Segments& segments, const HeadLayout& layout, float scale);
// Scratch that the two take.
int64_t own_attention_scratch_bytes(DType dtype, int64_t tokens, int64_t longest, int64_t segments,
                                    const HeadLayout& layout);

}  // namespace mantissa::cuda
