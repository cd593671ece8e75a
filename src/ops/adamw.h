// AdamW with decoupled weight decay: Loshchilov and Hutter 2019.
#pragma once

#include "tensor/exec.h"

namespace mantissa {

struct AdamwStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  float grad_scale = 1;      // gradient clipping factor
  int64_t t = 1;             // 1-based step of the bias corrections
};

// FP32 arithmetic in PyTorch's order: p -= lr wd p; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g²;
// p -= lr / (1-b1^t) * m / (sqrt(v) / sqrt(1-b2^t) + eps), g = grad_scale * grad.
// param: F32 master or BF16 weight; copy: optional BF16 compute copy, rounded to nearest. m, v: F32 or BF16.
// A BF16 param is rounded to nearest, or stochastically (`stochastic`) with 16 bits a draw from key(tensor, update).
// Returns how many elements of a BF16 param had a non-zero update and did not move.
int64_t adamw(Exec& exec, Tensor param, Tensor copy, ConstTensor grad, Tensor m, Tensor v, const AdamwStep& step,
              bool stochastic, uint32_t tensor_id);

}  // namespace mantissa
