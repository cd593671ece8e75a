// BF16 operands, FP32 accumulation: the baseline that other recipes are held against.
#include "recipes/bf16.h"

#include "recipes/format.h"
#include "recipes/plain_linear.h"

namespace mantissa::bf16_recipe {
namespace {

OperandSpec spec(const RecipeOptions&, Role) { return {}; }

}  // namespace

RecipeEntry entry() {
  return {.name = "bf16",
          .spec = spec,
          .layer = make_plain_linear,
          .path = path_of_plain,
          .bits = 16,
          .compute = DType::kBF16,
          .options = {},
          .multiple = 1,
          .summary = "BF16 operands, FP32 accumulation: the baseline"};
}

}  // namespace mantissa::bf16_recipe
