#include "model/precision.h"

#include "base/error.h"

namespace mantissa {
namespace {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeEntry& entry : recipe_table()) names.emplace_back(entry.name);
  return names;
}

// The recipe of layers that a scope leaves out: FP32 under a 32-bit recipe, else BF16.
const RecipeEntry& high_precision(const RecipeEntry& recipe) {
  const int bits = recipe.bits == 32 ? 32 : 16;
  for (const RecipeEntry& entry : recipe_table())
    if (entry.bits == bits) return entry;
  fail(Exit::kInternal, "no recipe of {} bits", bits);
}

// Expands the first {a,b} of a pattern; true if any expansion matches.
bool match_alternatives(std::string_view pattern, size_t open, std::string_view name) {
  const size_t close = pattern.find('}', open);
  if (close == std::string_view::npos) fail(Exit::kUsage, "precision.rules: {}: brace is not closed", pattern);
  size_t begin = open + 1;
  while (begin <= close) {
    size_t end = pattern.find(',', begin);
    if (end == std::string_view::npos || end > close) end = close;
    std::string one(pattern.substr(0, open));
    one += pattern.substr(begin, end - begin);
    one += pattern.substr(close + 1);
    if (glob_match(one, name)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view name) {
  const size_t open = pattern.find('{');
  if (open != std::string_view::npos) return match_alternatives(pattern, open, name);
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1, n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void PrecisionConfig::describe(config::Fields& f) {
  f.choice("weights", weights, {"fp32", "bf16", "bf16-sr"},
           "fp32: FP32 master with a BF16 copy; bf16-sr: stochastic rounding");
  f.choice("recipe", recipe, recipe_names(), "precision of the linear layers");
  f.choice("scope", scope, {"linear", "linear+logits", "linear+logits+norm"}, "which layers the recipe takes");
  f.choice("path", path, {"auto", "native", "emulated"},
           "auto: native where the device has the format, else exact emulation");
  options.describe(f);
  size_t size = rules.size();
  f.list(
      "rules", size,
      [this](config::Fields& item, size_t i) {
        if (rules.size() <= i) rules.resize(i + 1);
        item.text("match", rules[i].match, "layer pattern: layers.{0,-1}.*");
        item.choice("recipe", rules[i].recipe, recipe_names(), "recipe of the layers that match");
      },
      "pattern -> recipe, the last match wins");
  rules.resize(size);
  f.texts("recipes", recipes, "compare: the recipes that are set against BF16");
}

void PrecisionConfig::validate() const {
  const RecipeEntry& base = find_recipe(recipe);
  for (const std::string& name : recipes) find_recipe(name);
  if (base.bits == 32 && weights != "fp32")
    fail(Exit::kUsage, "precision.weights: {}, but recipe {} computes in FP32 and needs fp32", weights, recipe);
  for (const PrecisionRule& rule : rules) {
    if (rule.match.empty() || rule.recipe.empty())
      fail(Exit::kUsage, "precision.rules: a rule needs both match and recipe");
    if ((find_recipe(rule.recipe).bits == 32) != (base.bits == 32))
      fail(Exit::kUsage, "precision.rules: {} -> {}: FP32 layers cannot be mixed with recipe {}", rule.match,
           rule.recipe, recipe);
  }
  if (path != "native") return;
  std::vector<std::string> in_use = {recipe};
  for (const PrecisionRule& rule : rules) in_use.push_back(rule.recipe);
  for (const std::string& name : in_use)
    if (find_recipe(name).bits < 16)
      fail(Exit::kUnavailable,
           "precision.path: native, but a CPU has no {} matrix unit; auto trains with exact emulation", name);
}

WeightMode PrecisionConfig::weight_mode() const {
  if (find_recipe(recipe).bits == 32) return WeightMode::kF32;
  if (weights == "fp32") return WeightMode::kF32Master;
  return weights == "bf16" ? WeightMode::kBF16 : WeightMode::kBF16SR;
}

const RecipeEntry& PrecisionConfig::recipe_of(const std::string& layer, int64_t index, int64_t layers) const {
  const RecipeEntry& base = find_recipe(recipe);
  const RecipeEntry* found = index < 0 && !covers_logits() ? &high_precision(base) : &base;
  // "layers.3.mlp.down" of 4 layers is also "layers.-1.mlp.down".
  std::string from_end = layer;
  if (index >= 0) {
    const std::string prefix = fmt::format("layers.{}.", index);
    from_end = fmt::format("layers.{}.{}", index - layers, layer.substr(prefix.size()));
  }
  for (const PrecisionRule& rule : rules)
    if (glob_match(rule.match, layer) || glob_match(rule.match, from_end)) found = &find_recipe(rule.recipe);
  return *found;
}

}  // namespace mantissa
