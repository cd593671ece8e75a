// Which layer runs under which recipe.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "model/param.h"
#include "recipes/recipe.h"

namespace mantissa {

// Layers whose name matches `match` get `recipe`; * matches anything, {a,b} one of a list, negative layer indexes count
// from the end: "layers.{0,-1}.*".
struct PrecisionRule {
  std::string match, recipe;
};

// The scopes, the narrowest first.
const std::vector<std::string>& scope_names();

struct PrecisionConfig {
  std::string weights = "fp32";  // fp32 | bf16 | bf16-sr
  std::string recipe = "bf16";   // a row of recipe_table()
  std::string scope = "linear";  // of scope_names()
  std::string path = "auto";     // auto | native | emulated
  RecipeOptions options;
  std::vector<PrecisionRule> rules;                          // the last match wins
  std::vector<std::string> recipes = compared_by_default();  // that compare sets against BF16

  void describe(config::Fields& fields);
  // Throws Exit::kUsage for names and combinations that cannot run, Exit::kUnavailable for path: native where there is
  // none.
  void validate() const;
  // Throws Exit::kUsage for a rule, or one of its {a,b}, that matches no layer of a model of `layers` blocks.
  void validate_rules(int64_t layers) const;
  // A sentence where rules leave no layer to `recipe`, else "".
  std::string rules_note(int64_t layers) const;
  // The same where they take any layer from it.
  std::string mixed_note(int64_t layers) const;

  WeightMode weight_mode() const;
  bool covers_logits() const { return scope != "linear"; }
  bool fuses_norm() const { return scope == "linear+logits+norm"; }
  // The recipe of a layer: "layers.3.mlp.down" (index 3 of `layers`) or "head" (index -1).
  const RecipeEntry& recipe_of(const std::string& layer, int64_t index, int64_t layers) const;
};

// True if `pattern` (with * and {a,b}) matches all of `name`.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace mantissa
