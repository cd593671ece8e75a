// RMSNorm and LayerNorm. T tokens, H hidden. Arithmetic in FP32; x, dy, dx are BF16 or F32, weight has x's dtype,
// weight gradients are F32 or BF16 and accumulate (rounded once a call).
#pragma once

#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa {

// y = x * rstd * weight, rstd = 1/sqrt(mean(x²) + eps). Zhang and Sennrich 2019. y.high is BF16 or F32; then y's
// quantized forms are filled.
void rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd /*[T] f32*/, ConstTensor x /*[T,H]*/, ConstTensor weight /*[H]*/,
                  float eps);
// dx = gradient through the norm (+ dresidual if given: the gradient that flows past the norm); dweight += .
void rms_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, ConstTensor dy, ConstTensor x, ConstTensor weight,
                  ConstTensor rstd, ConstTensor dresidual);

// h = x + r (rounded to x's dtype), then y = rms_norm(h): one pass. h may be x itself.
void add_rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r, ConstTensor weight,
                      float eps);

// y = (x - mean) * rstd * weight + bias. Ba et al. 2016.
void layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, ConstTensor x, ConstTensor weight,
                    ConstTensor bias, float eps);
void layer_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, Tensor dbias, ConstTensor dy, ConstTensor x,
                    ConstTensor weight, ConstTensor mean, ConstTensor rstd, ConstTensor dresidual);
void add_layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r,
                        ConstTensor weight, ConstTensor bias, float eps);

// GPU scratch that the backward passes of this header, of rope.h and of bias_bwd take at most, `cols` being H, or the
// N of a bias (H is at least D).
int64_t row_reduction_scratch_bytes(int64_t rows, int64_t cols);
// Most blocks that leave a row of partial sums each.
constexpr int64_t kRowReductionBlocks = 256;

}  // namespace mantissa
