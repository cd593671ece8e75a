// FP8 with one FP32 scale a tensor from its current amax (TransformerEngine: Float8CurrentScaling). docs/numerics.md 4.
#include "recipes/fp8_tensorwise.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::fp8_tensorwise_recipe {
namespace {

OperandSpec spec(const RecipeOptions& options, Role role) {
  return both_copies({.element = fp8_element(options, role, "hybrid"),
                      .rule = fp32_scale_rule(options, "fp32"),
                      .blocking = Blocking::kTensor});
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "fp8-tensorwise",
                          .spec = spec,
                          .producers = [](const RecipeOptions&) { return ProducerRule::kActivationAmax; },
                          .path = path_of_fp8_tensors,
                          .dimensions = kFp8Dimensions,
                          .bits = 8,
                          .options = {"format", "scales"},
                          .multiple = 1,
                          .summary = "FP8, one scale a tensor from its current amax"});
}

}  // namespace mantissa::fp8_tensorwise_recipe
