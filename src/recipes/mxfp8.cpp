// Microscaling FP8: a power-of-two scale per 32 elements along the contraction (TransformerEngine: MXFP8BlockScaling;
// OCP MX v1.0 with the exponent rounded up). docs/numerics.md 5B.
#include "recipes/mxfp8.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::mxfp8_recipe {
namespace {

constexpr int kBlock = 32;

OperandSpec spec(const RecipeOptions& options, Role role) {
  const bool tile = role == Role::kWeight && options.enable_2d_quantization;
  return both_copies({.element = fp8_element(options, role, "e4m3"),
                      .rule = ScaleRule::kE8M0,
                      .blocking = tile ? Blocking::kTile : Blocking::kRow,
                      .block = kBlock});
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "mxfp8",
                          .spec = spec,
                          .dimensions = {.tokens = kBlock, .out_features = kBlock, .in_features = kBlock},
                          .bits = 8,
                          .options = {"format", "enable_2d_quantization"},
                          .multiple = kBlock,
                          .summary = "FP8, a power-of-two scale per 32 elements"});
}

}  // namespace mantissa::mxfp8_recipe
