// The passes that own.cu chooses from. Arguments are checked by the caller.
#pragma once

#include "ops/cuda/attention/tile.cuh"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

// BF16 on the tensor cores; head_dim is a multiple of 8 and addresses of 16 bytes.
void forward_mma(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a);
void backward_mma(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                  const float* delta, const AttentionView& a);

// The same with Hopper's warpgroup products (sm_90), head_dim up to 128.
void forward_hopper(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a);
void backward_hopper(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                     const float* delta, const AttentionView& a);

// For head_dims above 64, at most 1024 segments, walking over a list of the documents' tiles in `scratch`: list_bytes
// and fused_scratch_bytes (scratch.h). `offsets` holds even where they are uniform. backward_fused is one kernel
// between two passes over rows; its sums of dq have no fixed order.
void forward_listed(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, void* scratch, const AttentionView& a);
void backward_fused(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const Bf16* out,
                    const float* lse, void* scratch, const AttentionView& a);

// FP32 arithmetic on Bf16 or float, any head_dim up to 256.
template <class E>
void forward_plain(CudaDevice& device, E* out, float* lse, const E* qkv, const AttentionView& a);
template <class E>
void backward_plain(CudaDevice& device, E* dqkv, const E* dout, const E* qkv, const float* lse, const float* delta,
                    const AttentionView& a);

// delta[N,T] = Σ dout ∘ out over each head.
template <class E>
void row_products(CudaDevice& device, float* delta, const E* dout, const E* out, const AttentionView& a);

}  // namespace mantissa::cuda
