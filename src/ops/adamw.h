// AdamW with decoupled weight decay: Loshchilov and Hutter 2019.
#pragma once

#include <span>

#include "tensor/exec.h"

namespace mantissa {

struct AdamwStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  float grad_scale = 1;  // gradient clipping factor
  int64_t t = 1;         // 1-based step of the bias corrections
};

// A step's numbers as every kernel takes them: computed in double, rounded once.
struct AdamwFactors {
  float decay;  // lr * weight_decay
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, sqrt_correction2, eps;  // lr / (1 - beta1^t), sqrt(1 - beta2^t)
  explicit AdamwFactors(const AdamwStep& step);
};

// One parameter of an update; all of it in exec's memory.
struct AdamwParam {
  Tensor param;             // F32 master or BF16 weight
  Tensor copy;              // optional BF16 compute copy, rounded to nearest
  ConstTensor grad;         // F32 or BF16
  Tensor m, v;              // F32, BF16 or U8 (8-bit codes, docs/optimizer.md)
  Tensor m_scale, v_scale;  // with U8: [ceil(n / kMomentBlock)] f32; all zeros is the state before the first step
  bool decays = true;
  uint32_t id = 0;  // of the random stream
};

constexpr int64_t kMomentBlock = 128;  // elements under one scale of 8-bit moments

struct AdamwOutcome {
  double grad_norm = 0;  // of all gradients, before clipping
  int64_t unmoved = 0;   // BF16 params: elements with a non-zero update that did not move
};

// Gradient norm over all parameters (double, one fixed order), clipping (torch.nn.utils.clip_grad_norm_: grads are
// scaled by min(1, max_norm / (norm + 1e-6)); max_norm 0: off), then for each in FP32 arithmetic, in PyTorch's order:
// p -= lr wd p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²; p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps),
// g = grad_scale * grad. A BF16 param is rounded to nearest, or stochastically (`stochastic`) with 16 bits a draw from
// key(id, update). step.grad_scale multiplies what clipping gives, step.weight_decay enters where the parameter decays.
// Where the norm is not finite nothing moves. `outcome`, in exec's memory, is overwritten; no host read happens. On a
// GPU the squares are summed in FP32 over eight elements, then in double; the rows of `params` are copied in, so the
// call is not to be captured.
void adamw_update(Exec& exec, AdamwOutcome* outcome, std::span<const AdamwParam> params, const AdamwStep& step,
                  double max_norm, bool stochastic);
// GPU scratch that adamw_update takes at most.
int64_t adamw_scratch_bytes(std::span<const AdamwParam> params);

}  // namespace mantissa
