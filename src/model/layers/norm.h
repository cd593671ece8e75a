// The norm in front of a sublayer: RMSNorm or LayerNorm by the architecture's traits.
#pragma once

#include "model/arch/arch.h"
#include "model/context.h"

namespace mantissa {

// Saved statistics of one norm.
struct NormStats {
  Tensor mean, rstd;  // [T] f32; mean for LayerNorm only
};

class Norm {
 public:
  Norm(NormKind kind, double eps, int weight, int bias)
      : kind_(kind), eps_(static_cast<float>(eps)), weight_(weight), bias_(bias) {}

  NormStats make_stats(Allocator& kept, int64_t tokens) const;
  // y = norm(x)
  void forward(StepContext& context, Operand& y, const NormStats& stats, ConstTensor x) const;
  // h = x + r, y = norm(h)
  void add_forward(StepContext& context, Operand& y, const NormStats& stats, Tensor h, ConstTensor x,
                   ConstTensor r) const;
  // dx = dresidual + gradient through the norm; dx may be dresidual
  void backward(StepContext& context, Tensor dx, ConstTensor dy, ConstTensor x, const NormStats& stats,
                ConstTensor dresidual) const;

 private:
  NormKind kind_;
  float eps_;
  int weight_, bias_;
};

}  // namespace mantissa
