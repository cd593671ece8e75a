// Rotary position embedding and Qwen3's per-head norm of queries and keys, on fused qkv[T, (N + 2 KV) D].
// Pairs are (i, i + D/2), as in Hugging Face. Arithmetic in FP32, storage BF16 or F32.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

struct HeadLayout {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // N, KV, D
  constexpr int64_t qkv_cols() const { return (heads + 2 * kv_heads) * head_dim; }
};

// cos_sin[P, D] f32: cos of the D/2 angles, then sin, of each position. Positions outside of [0, P) are refused on a
// CPU and not looked at on a GPU.
// y = rotated q and k, v copied; y may be x itself.
void rope_fwd(Exec& exec, Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions /*[T] i32*/,
              const HeadLayout& layout);
// dx = dy rotated back, dv copied; dx may be dy itself.
void rope_bwd(Exec& exec, Tensor dx, ConstTensor dy, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout);

// q and k heads are RMS-normalised over D with q_weight, k_weight [D], then rotated; v copied. rstd [T, N + KV] f32
// saved.
void qk_norm_rope_fwd(Exec& exec, Tensor y, Tensor rstd, ConstTensor x, ConstTensor q_weight, ConstTensor k_weight,
                      ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout, float eps);
// dq_weight, dk_weight (f32 or bf16) accumulate; dx may be dy itself.
void qk_norm_rope_bwd(Exec& exec, Tensor dx, Tensor dq_weight, Tensor dk_weight, ConstTensor dy, ConstTensor x,
                      ConstTensor rstd, ConstTensor q_weight, ConstTensor k_weight, ConstTensor cos_sin,
                      ConstTensor positions, const HeadLayout& layout);

}  // namespace mantissa
