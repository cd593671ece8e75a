// FP4 with an E4M3 scale per 16 elements and an FP32 scale a tensor (TransformerEngine: NVFP4BlockScaling). Weights
// share a scale per 16x16; gradients round stochastically; what wgrad contracts is rotated by a random Hadamard
// transform along the tokens first, which cancels in the product. docs/numerics.md 6.
#include "recipes/nvfp4.h"

#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::nvfp4_recipe {
namespace {

constexpr int kBlock = 16;

OperandSpec spec(const RecipeOptions& options, Role role) {
  const bool weight = role == Role::kWeight;
  OperandSpec copies =
      both_copies({.element = DType::kE2M1,
                   .rule = ScaleRule::kNvfp4,
                   .blocking = weight && !options.disable_2d_quantization ? Blocking::kTile : Blocking::kRow,
                   .block = kBlock,
                   .stochastic = role == Role::kGrad && !options.disable_stochastic_rounding});
  copies.columnwise->hadamard = !weight && !options.disable_rht;
  return copies;
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "nvfp4",
                          .spec = spec,
                          .producers =
                              [](const RecipeOptions& options) {
                                return options.disable_rht ? ProducerRule::kActivationAmax : ProducerRule::kRounded;
                              },
                          .dimensions = {.tokens = kBlock, .out_features = kBlock, .in_features = kBlock},
                          .bits = 4,
                          .options = {"disable_rht", "disable_stochastic_rounding", "disable_2d_quantization"},
                          .multiple = kBlock,
                          .summary = "FP4, E4M3 scales per 16 elements, stochastic gradients, rotated wgrad"});
}

}  // namespace mantissa::nvfp4_recipe
