#pragma once

#include "recipes/recipe.h"

namespace mantissa::nvfp4_recipe {

RecipeEntry entry();

}  // namespace mantissa::nvfp4_recipe
