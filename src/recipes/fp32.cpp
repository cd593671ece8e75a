// Everything in FP32: the reference of goldens and probes.
#include "recipes/fp32.h"

#include "recipes/format.h"
#include "recipes/plain_linear.h"

namespace mantissa::fp32_recipe {
namespace {

OperandSpec spec(const RecipeOptions&, Role) { return {}; }
void check_site(const RecipeOptions&, const LinearSite&, int64_t) {}
std::unique_ptr<LinearRecipe> make(const RecipeOptions&, const LinearSite& site) {
  return make_plain_linear("fp32", DType::kF32, site);
}

}  // namespace

RecipeEntry entry() {
  return {.name = "fp32",
          .spec = spec,
          .check = check_site,
          .make = make,
          .path = path_of_plain,
          .bits = 32,
          .compute = DType::kF32,
          .options = {},
          .multiple = 1,
          .summary = "everything in FP32: the reference"};
}

}  // namespace mantissa::fp32_recipe
