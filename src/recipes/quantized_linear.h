// What the quantized recipes share: the weight's copies and the three products on the operands' quantized forms.
//   fprop  y[M,N]  = x.rowwise     · w.rowwise ᵀ        contracts K
//   dgrad  dx[M,K] = dy.rowwise    · w.columnwise ᵀ     contracts N
//   wgrad  dw[N,K] = dy.columnwise · x.columnwise ᵀ     contracts M
// docs/numerics.md, "GEMM operand use". Where both copies of a tensor hold the same codes, only the rowwise one is
// stored and gemm() reads it transposed.
#pragma once

#include "recipes/recipe.h"

namespace mantissa {

// What a fused producer hands to the cast (docs/numerics.md, "Producers").
enum class ProducerRule : uint8_t {
  kRounded,         // the BF16 value, always
  kActivationAmax,  // the BF16 value; activations take the amax before rounding
  kUnrounded,       // norms in scope +norm and activations hand over the FP32 value
};

// The formats of one layer, both copies each.
struct LinearFormats {
  OperandSpec input, weight, grad;
  ProducerRule producers = ProducerRule::kRounded;
};

// What a recipe's `spec` gives each role.
inline LinearFormats formats_of(OperandSpec (*spec)(const RecipeOptions&, Role), const RecipeOptions& options,
                                ProducerRule producers = ProducerRule::kRounded) {
  return {.input = spec(options, Role::kInput),
          .weight = spec(options, Role::kWeight),
          .grad = spec(options, Role::kGrad),
          .producers = producers};
}

class QuantizedLinear : public LinearRecipe {
 public:
  QuantizedLinear(const char* recipe, const LinearSite& site, const LinearFormats& formats);

  OperandSpec input_spec(Producer producer) const override { return stored(formats_.input, producer); }
  OperandSpec grad_spec(Producer producer) const override { return stored(formats_.grad, producer); }
  void allocate(Arena& arena) override;
  void bind_input(Operand& x) const override { x.tensor_id = site_.tensor_id; }
  void bind_grad(Operand& dy) const override { dy.tensor_id = site_.tensor_id + 2; }
  void refresh_weight(Exec& exec, ConstTensor w) override;
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

  const char* recipe_;
  LinearSite site_;
  LinearFormats formats_;
  Operand weight_;  // forms of w[N,K]
};

}  // namespace mantissa
