// Everything in FP32: the reference of goldens and probes.
#include "recipes/fp32.h"

#include "recipes/format.h"
#include "recipes/plain_linear.h"

namespace mantissa::fp32_recipe {
namespace {

OperandSpec spec(const RecipeOptions&, Role) { return {}; }

}  // namespace

RecipeEntry entry() {
  return {.name = "fp32",
          .spec = spec,
          .layer = make_plain_linear,
          .path = path_of_plain,
          .bits = 32,
          .compute = DType::kF32,
          .options = {},
          .multiple = 1,
          .summary = "everything in FP32: the reference"};
}

}  // namespace mantissa::fp32_recipe
