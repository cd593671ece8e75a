// A linear layer without quantization: the operands' high-precision values go into the products as they are.
#pragma once

#include "recipes/recipe.h"

namespace mantissa {

// `compute`: dtype that the weight must have (BF16, or F32 for recipe fp32).
std::unique_ptr<LinearRecipe> make_plain_linear(const char* recipe, DType compute, const LinearSite& site);

}  // namespace mantissa
