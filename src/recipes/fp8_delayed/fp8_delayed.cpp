// FP8 with one FP32 scale a tensor, from the amaxes of earlier micro-batches (TransformerEngine: DelayedScaling).
// docs/numerics.md 3. Forward slots move after the forward, the backward slot after the backward of a micro-batch.
#include "recipes/fp8_delayed/fp8_delayed.h"

#include <cmath>

#include "recipes/format.h"
#include "recipes/fp8_delayed/scaling.h"
#include "recipes/quantized_linear.h"

namespace mantissa::fp8_delayed_recipe {
namespace {

OperandSpec spec(const RecipeOptions& options, Role role) {
  return both_copies(
      {.element = fp8_element(options, role, "hybrid"), .rule = ScaleRule::kGiven, .blocking = Blocking::kTensor});
}

DelayedRule rule_for(const RecipeOptions& options, Role role) {
  const float largest = fp8_element(options, role, "hybrid") == DType::kE4M3 ? 448.0f : 57344.0f;
  return {.history_len = options.amax_history_len,
          .most_recent = options.amax_compute_algo == "most_recent",
          .numerator = std::ldexp(largest, -static_cast<int>(options.margin))};
}

class DelayedLinear final : public QuantizedLinear {
 public:
  DelayedLinear(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site)
      : QuantizedLinear(entry, options, site),
        forward_(rule_for(options, Role::kInput), 2),
        backward_(rule_for(options, Role::kGrad), 1) {}

  void allocate(Arena& arena) override {
    QuantizedLinear::allocate(arena);
    forward_.allocate(arena);
    backward_.allocate(arena);
    weight().rowwise.scale = forward_.scale(kWeightSlot);
  }
  void bind_input(Operand& x) const override {
    QuantizedLinear::bind_input(x);
    x.rowwise.scale = forward_.scale(kInputSlot);
  }
  void bind_grad(Operand& dy) const override {
    QuantizedLinear::bind_grad(dy);
    dy.rowwise.scale = backward_.scale(0);
  }

  void refresh_weight(Exec& exec, ConstTensor w) override {
    QuantizedLinear::refresh_weight(exec, w);
    if (exec.pass == Pass::kForward) forward_.raise(kWeightSlot, *weight().rowwise.amax);
  }
  void fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) override {
    QuantizedLinear::fprop(exec, y, x, bias);
    if (exec.pass == Pass::kForward) forward_.raise(kInputSlot, *x.rowwise.amax);
  }
  // Either product of the backward takes the gradient's amax over: the first layer may leave dgrad out.
  void dgrad(Exec& exec, Tensor dx, const Operand& dy) override {
    QuantizedLinear::dgrad(exec, dx, dy);
    backward_.raise(0, *dy.rowwise.amax);
  }
  void wgrad(Exec& exec, Tensor dw, const Operand& dy, const Operand& x, float beta) override {
    QuantizedLinear::wgrad(exec, dw, dy, x, beta);
    backward_.raise(0, *dy.rowwise.amax);
  }

  std::string end_forward() override { return forward_.update(site().name, {"input", "weight"}); }
  std::string end_backward() override {
    std::string nonfinite = backward_.update(site().name, {"grad"});
    backward_.publish();
    forward_.publish();
    return nonfinite;
  }

  void visit_state(const StateVisitor& f) const override {
    f("scale_fwd", forward_.scales());
    f("amax_history_fwd", forward_.history());
    f("scale_bwd", backward_.scales());
    f("amax_history_bwd", backward_.history());
  }

 private:
  static constexpr int kInputSlot = 0, kWeightSlot = 1;

  DelayedScaling forward_, backward_;
};

std::unique_ptr<LinearRecipe> make(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site) {
  return std::make_unique<DelayedLinear>(entry, options, site);
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "fp8-delayed",
                          .spec = spec,
                          .layer = make,
                          .producers = [](const RecipeOptions&) { return ProducerRule::kUnrounded; },
                          .dimensions = kFp8Dimensions,
                          .bits = 8,
                          .options = {"format", "margin", "amax_history_len", "amax_compute_algo"},
                          .multiple = 1,
                          .summary = "FP8, one scale a tensor from past amaxes"});
}

}  // namespace mantissa::fp8_delayed_recipe
