#pragma once

#include "recipes/recipe.h"

namespace mantissa::mxfp8_recipe {

RecipeEntry entry();

}  // namespace mantissa::mxfp8_recipe
