// A linear layer without quantization: the operands' high-precision values go into the products as they are.
#pragma once

#include "recipes/recipe.h"

namespace mantissa {

// RecipeEntry::layer; the weight must have the entry's compute dtype.
std::unique_ptr<LinearRecipe> make_plain_linear(const RecipeEntry& entry, const RecipeOptions& options,
                                                const LinearSite& site, const RecipeTarget& target);

}  // namespace mantissa
