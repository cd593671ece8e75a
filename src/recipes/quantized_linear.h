// What the quantized recipes share: the weight's copies and the three products on the operands' quantized forms.
//   fprop  y[M,N]  = x.rowwise     · w.rowwise ᵀ        contracts K
//   dgrad  dx[M,K] = dy.rowwise    · w.columnwise ᵀ     contracts N
//   wgrad  dw[N,K] = dy.columnwise · x.columnwise ᵀ     contracts M
// docs/numerics.md, "GEMM operand use". Where both copies of a tensor hold the same codes, only the rowwise one is
// stored and gemm() reads it transposed, but for a GPU's products of codes, which run along rows alone.
#pragma once

#include "recipes/recipe.h"

namespace mantissa {

class QuantizedLinear : public LinearRecipe {
 public:
  QuantizedLinear(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                  const RecipeTarget& target);

  OperandSpec input_spec(Producer producer) const override { return stored(input_, producer); }
  OperandSpec grad_spec(Producer producer) const override { return stored(grad_, producer); }
  void allocate(Arena& arena) override;
  void bind_input(Operand& x) const override { bind(x, 0); }
  void bind_grad(Operand& dy) const override { bind(dy, 2); }
  void refresh_weight(Exec& exec, Tensor w) override;
  void fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) override;
  void dgrad(Exec& exec, Tensor dx, const Operand& dy) override;
  void wgrad(Exec& exec, Tensor dw, const Operand& dy, const Operand& x, float beta) override;
  const Quantized* weight_form() const override { return &weight_.rowwise; }
  RecipeInfo info() const override;

 protected:
  const LinearSite& site() const { return site_; }
  Operand& weight() { return weight_; }

 private:
  OperandSpec stored(OperandSpec spec, Producer producer) const;
  void bind(Operand& x, uint32_t tensor) const;

  const char* recipe_;
  LinearSite site_;
  RecipeTarget target_;
  Path path_;
  OperandSpec input_, weight_spec_, grad_;  // both copies each
  ProducerRule producers_;
  Operand weight_;  // forms of w[N,K]
};

// The row of a recipe whose layers are QuantizedLinear, or what `row.layer` makes of it, with BF16 around them.
RecipeEntry quantized_entry(RecipeEntry row);

}  // namespace mantissa
