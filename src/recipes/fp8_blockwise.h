#pragma once

#include "recipes/recipe.h"

namespace mantissa::fp8_blockwise_recipe {

RecipeEntry entry();

}  // namespace mantissa::fp8_blockwise_recipe
