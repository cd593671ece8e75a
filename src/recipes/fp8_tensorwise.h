#pragma once

#include "recipes/recipe.h"

namespace mantissa::fp8_tensorwise_recipe {

RecipeEntry entry();

}  // namespace mantissa::fp8_tensorwise_recipe
