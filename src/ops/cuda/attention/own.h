// The project's own attention (Dao 2023, FlashAttention-2). BF16 on the tensor cores with FP32 sums and softmax, F32 in
// FP32 throughout. Any head_dim up to 256, packed documents of any lengths, empty slots behind them. No atomics, every
// sum in one order that the shapes alone fix, so two runs agree in every bit; but for the fused backward pass.
#pragma once

#include "ops/attention.h"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

// As attention_fwd and attention_bwd of ops/attention.h, for arguments that those have checked.
void own_attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                       const HeadLayout& layout, float scale);
void own_attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                       const Segments& segments, const HeadLayout& layout, float scale);

// Whether the kernels for Hopper that walk over a list of the documents' tiles have these sizes: BF16, head_dims above
// 64 and up to 128 that are multiples of 8, at most 1024 segments. Then the backward pass, outside of deterministic
// mode, is fused: it makes all three gradients at once, and the sums of dq have no fixed order.
bool own_takes_lists(const CudaDevice& device, const ConstTensor& qkv, const Segments& segments,
                     const HeadLayout& layout);

}  // namespace mantissa::cuda
