#pragma once

#include "recipes/recipe.h"

namespace mantissa::bf16_recipe {

RecipeEntry entry();

}  // namespace mantissa::bf16_recipe
