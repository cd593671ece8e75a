// FP8 with one FP32 scale a tensor from its current amax (TransformerEngine: Float8CurrentScaling). docs/numerics.md 4.
#include "recipes/fp8_tensorwise.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::fp8_tensorwise_recipe {
namespace {

constexpr const char* kName = "fp8-tensorwise";

OperandSpec spec(const RecipeOptions& options, Role role) {
  return both_copies({.element = fp8_element(options, role, "hybrid"),
                      .rule = fp32_scale_rule(options, "fp32"),
                      .blocking = Blocking::kTensor});
}

void check_site(const RecipeOptions&, const LinearSite& site, int64_t m) {
  check_dimensions(kName, site, m, kFp8Dimensions);
}

std::unique_ptr<LinearRecipe> make(const RecipeOptions& options, const LinearSite& site) {
  return std::make_unique<QuantizedLinear>(kName, site, formats_of(spec, options, ProducerRule::kActivationAmax));
}

}  // namespace

RecipeEntry entry() {
  return {.name = kName,
          .spec = spec,
          .check = check_site,
          .make = make,
          .path = path_of_quantized,
          .bits = 8,
          .compute = DType::kBF16,
          .options = {"format", "scales"},
          .multiple = 1,
          .summary = "FP8, one scale a tensor from its current amax"};
}

}  // namespace mantissa::fp8_tensorwise_recipe
