#pragma once

#include "recipes/recipe.h"

namespace mantissa::fp32_recipe {

RecipeEntry entry();

}  // namespace mantissa::fp32_recipe
