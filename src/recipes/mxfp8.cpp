// Microscaling FP8: a power-of-two scale per 32 elements along the contraction (TransformerEngine: MXFP8BlockScaling;
// OCP MX v1.0 with the exponent rounded up). docs/numerics.md 5B.
#include "recipes/mxfp8.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::mxfp8_recipe {
namespace {

constexpr const char* kName = "mxfp8";
constexpr int kBlock = 32;

OperandSpec spec(const RecipeOptions& options, Role role) {
  const bool tile = role == Role::kWeight && options.enable_2d_quantization;
  return both_copies({.element = fp8_element(options, role, "e4m3"),
                      .rule = ScaleRule::kE8M0,
                      .blocking = tile ? Blocking::kTile : Blocking::kRow,
                      .block = kBlock});
}

void check_site(const RecipeOptions&, const LinearSite& site, int64_t m) {
  check_dimensions(kName, site, m, {.tokens = kBlock, .out_features = kBlock, .in_features = kBlock});
}

std::unique_ptr<LinearRecipe> make(const RecipeOptions& options, const LinearSite& site) {
  return std::make_unique<QuantizedLinear>(kName, site, formats_of(spec, options));
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
          .options = {"format", "enable_2d_quantization"},
          .multiple = kBlock,
          .summary = "FP8, a power-of-two scale per 32 elements"};
}

}  // namespace mantissa::mxfp8_recipe
