// FP8 with a scale per 1x128 block of activations and gradients and per 128x128 block of weights (TransformerEngine:
// Float8BlockScaling). docs/numerics.md 5A.
#include "recipes/fp8_blockwise.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::fp8_blockwise_recipe {
namespace {

OperandSpec spec(const RecipeOptions& options, Role role) {
  return both_copies({.element = fp8_element(options, role, "e4m3"),
                      .rule = fp32_scale_rule(options, "pow2"),
                      .blocking = role == Role::kWeight ? Blocking::kTile : Blocking::kRow,
                      .block = 128});
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "fp8-blockwise",
                          .spec = spec,
                          .path = path_of_fp8_blocks,
                          .dimensions = kFp8Dimensions,
                          .bits = 8,
                          .options = {"format", "scales"},
                          .multiple = 1,
                          .summary = "FP8, scales per 1x128 (activations) and 128x128 (weights)"});
}

}  // namespace mantissa::fp8_blockwise_recipe
