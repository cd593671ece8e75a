#include "model/layers/norm.h"

#include "ops/norm.h"

namespace mantissa {

NormStats Norm::make_stats(Allocator& kept, int64_t tokens) const {
  NormStats stats;
  stats.rstd = kept.tensor("activations", DType::kF32, {tokens});
  if (kind_ == NormKind::kLayer) stats.mean = kept.tensor("activations", DType::kF32, {tokens});
  return stats;
}

void Norm::forward(StepContext& c, Operand& y, const NormStats& stats, ConstTensor x) const {
  const ParamStore& p = c.params;
  if (kind_ == NormKind::kRms)
    rms_norm_fwd(c.exec, y, stats.rstd, x, p.weight(weight_), eps_);
  else
    layer_norm_fwd(c.exec, y, stats.mean, stats.rstd, x, p.weight(weight_), p.weight(bias_), eps_);
}

void Norm::add_forward(StepContext& c, Operand& y, const NormStats& stats, Tensor h, ConstTensor x,
                       ConstTensor r) const {
  const ParamStore& p = c.params;
  if (kind_ == NormKind::kRms)
    add_rms_norm_fwd(c.exec, y, stats.rstd, h, x, r, p.weight(weight_), eps_);
  else
    add_layer_norm_fwd(c.exec, y, stats.mean, stats.rstd, h, x, r, p.weight(weight_), p.weight(bias_), eps_);
}

void Norm::backward(StepContext& c, Tensor dx, ConstTensor dy, ConstTensor x, const NormStats& stats,
                    ConstTensor dresidual) const {
  const ParamStore& p = c.params;
  if (kind_ == NormKind::kRms)
    rms_norm_bwd(c.exec, dx, p.grad(weight_), dy, x, p.weight(weight_), stats.rstd, dresidual);
  else
    layer_norm_bwd(c.exec, dx, p.grad(weight_), p.grad(bias_), dy, x, p.weight(weight_), stats.mean, stats.rstd,
                   dresidual);
}

}  // namespace mantissa
