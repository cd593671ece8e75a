// The recipes, in the order of tables. A new recipe is a file and a row here.
#include "recipes/bf16.h"
#include "recipes/fp32.h"
#include "recipes/fp8_blockwise.h"
#include "recipes/fp8_delayed/fp8_delayed.h"
#include "recipes/fp8_tensorwise.h"
#include "recipes/mxfp8.h"
#include "recipes/nvfp4.h"
#include "recipes/recipe.h"

namespace mantissa {

const std::vector<RecipeEntry>& recipe_table() {
  static const std::vector<RecipeEntry> table = {
      fp32_recipe::entry(),          bf16_recipe::entry(),  fp8_delayed_recipe::entry(), fp8_tensorwise_recipe::entry(),
      fp8_blockwise_recipe::entry(), mxfp8_recipe::entry(), nvfp4_recipe::entry(),
  };
  return table;
}

std::vector<std::string> compared_by_default() {
  return {fp8_delayed_recipe::entry().name, mxfp8_recipe::entry().name, nvfp4_recipe::entry().name};
}

const RecipeEntry& plain_recipe(bool full_precision) {
  for (const RecipeEntry& entry : recipe_table())
    if (!entry.quantizes() && entry.full_precision() == full_precision) return entry;
  fail(Exit::kInternal, "no recipe quantizes nothing in {}", full_precision ? "fp32" : "bf16");
}

const RecipeEntry& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const RecipeEntry& entry : recipe_table()) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
  }
  const std::string near = config::nearest(name, names);
  fail(Exit::kUsage, "recipe {} is unknown{}; recipes: {}", name, near.empty() ? "" : "; did you mean " + near + "?",
       all);
}

}  // namespace mantissa
