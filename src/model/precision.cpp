#include "model/precision.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/arch/arch.h"

namespace mantissa {
namespace {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeEntry& entry : recipe_table()) names.emplace_back(entry.name);
  return names;
}

// The recipe of layers that a scope leaves out.
const RecipeEntry& high_precision(const RecipeEntry& recipe) { return plain_recipe(recipe.full_precision()); }

// Whether any device multiplies the recipe's format itself.
bool has_native_path(const RecipeEntry& recipe) {
  return recipe.path({.gpu = false}).path == Path::kNative || recipe.path({.gpu = true}).path == Path::kNative;
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

constexpr size_t kMaxAlternatives = 1024;

// The patterns that {a,b} stand for.
std::vector<std::string> alternatives(const std::string& pattern) {
  const size_t open = pattern.find('{'), close = pattern.find('}', std::min(open, pattern.size()));
  if (open == std::string::npos || close == std::string::npos) return {pattern};
  std::vector<std::string> all;
  for (const std::string& part : split(std::string_view(pattern).substr(open + 1, close - open - 1), ','))
    for (std::string& one : alternatives(pattern.substr(0, open) + part + pattern.substr(close + 1)))
      all.push_back(std::move(one));
  if (all.size() > kMaxAlternatives)
    fail(Exit::kUsage, "precision.rules: {}: stands for more than {} patterns", printable(pattern, 60),
         kMaxAlternatives);
  return all;
}

// "layers.3.mlp.down" of 4 layers is also "layers.-1.mlp.down".
std::string name_from_end(const std::string& layer, int64_t index, int64_t layers) {
  if (index < 0) return layer;
  const std::string prefix = fmt::format("layers.{}.", index);
  return fmt::format("layers.{}.{}", index - layers, layer.substr(prefix.size()));
}

bool rule_matches(const std::string& pattern, const std::string& layer, int64_t index, int64_t layers) {
  return glob_match(pattern, layer) || glob_match(pattern, name_from_end(layer, index, layers));
}

// Calls visit(name, index) for every linear layer; visit says whether to go on.
template <class Visit>
void for_each_layer(int64_t layers, Visit&& visit) {
  for (int64_t i = 0; i < layers; ++i)
    for (const char* leaf : param_names::kLinears)
      if (!visit(param_names::layer(i, leaf), i)) return;
  visit(std::string("head"), int64_t{-1});
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

const std::vector<std::string>& scope_names() {
  static const std::vector<std::string> names = {"linear", "linear+logits", "linear+logits+norm"};
  return names;
}

void PrecisionConfig::describe(config::Fields& f) {
  f.choice("weights", weights, {"fp32", "bf16", "bf16-sr"},
           "fp32: FP32 master with a BF16 copy; bf16-sr: stochastic rounding");
  f.choice("recipe", recipe, recipe_names(), "precision of the linear layers");
  f.choice("scope", scope, scope_names(), "which layers the recipe takes");
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
  if (base.full_precision() && weights != "fp32")
    fail(Exit::kUsage, "precision.weights: {}, but recipe {} computes in FP32 and needs fp32", weights, recipe);
  for (const PrecisionRule& rule : rules) {
    if (rule.match.empty() || rule.recipe.empty())
      fail(Exit::kUsage, "precision.rules: a rule needs both match and recipe");
    if (find_recipe(rule.recipe).full_precision() != base.full_precision())
      fail(Exit::kUsage, "precision.rules: {} -> {}: FP32 layers cannot be mixed with recipe {}", rule.match,
           rule.recipe, recipe);
  }
  if (path != "native") return;
  std::vector<std::string> in_use = {recipe};
  for (const PrecisionRule& rule : rules) in_use.push_back(rule.recipe);
  for (const std::string& name : in_use)
    if (!has_native_path(find_recipe(name)))
      fail(Exit::kUnavailable,
           "precision.path: native, but no device multiplies {} itself in this version; auto trains with exact "
           "emulation",
           name);
}

void PrecisionConfig::validate_rules(int64_t layers) const {
  for (const PrecisionRule& rule : rules)
    for (const std::string& pattern : alternatives(rule.match)) {
      bool found = false;
      for_each_layer(layers, [&](const std::string& name, int64_t index) {
        found = rule_matches(pattern, name, index, layers);
        return !found;
      });
      if (found) continue;
      const std::vector<std::string> leaves(std::begin(param_names::kLinears), std::end(param_names::kLinears));
      fail(
          Exit::kUsage,
          "precision.rules: {}: {}matches no layer; there are layers.0 to layers.{} (or layers.-{} to layers.-1), each "
          "with {}, and head",
          printable(rule.match, 100), pattern == rule.match ? "" : printable(pattern, 100) + " ", layers - 1, layers,
          join(leaves, ", "));
    }
}

std::string PrecisionConfig::mixed_note(int64_t layers) const {
  int64_t all = 0;
  std::vector<std::string> others;
  int64_t taken = 0;
  PrecisionConfig plain = *this;
  plain.rules.clear();
  for_each_layer(layers, [&](const std::string& name, int64_t index) {
    const std::string is = recipe_of(name, index, layers).name;
    ++all;
    if (is == plain.recipe_of(name, index, layers).name) return true;
    ++taken;
    if (std::find(others.begin(), others.end(), is) == others.end()) others.push_back(is);
    return true;
  });
  return taken == 0 ? "" : fmt::format("precision.rules put {} of {} layers under {}", taken, all, join(others, ", "));
}

std::string PrecisionConfig::rules_note(int64_t layers) const {
  bool left = false;
  for_each_layer(layers, [&](const std::string& name, int64_t index) {
    left = recipe_of(name, index, layers).name == recipe;
    return !left;
  });
  return left ? "" : fmt::format("no layer runs {}: {}", recipe, mixed_note(layers));
}

WeightMode PrecisionConfig::weight_mode() const {
  if (find_recipe(recipe).full_precision()) return WeightMode::kF32;
  if (weights == "fp32") return WeightMode::kF32Master;
  return weights == "bf16" ? WeightMode::kBF16 : WeightMode::kBF16SR;
}

const RecipeEntry& PrecisionConfig::recipe_of(const std::string& layer, int64_t index, int64_t layers) const {
  const RecipeEntry& base = find_recipe(recipe);
  const RecipeEntry* found = index < 0 && !covers_logits() ? &high_precision(base) : &base;
  for (const PrecisionRule& rule : rules)
    if (rule_matches(rule.match, layer, index, layers)) found = &find_recipe(rule.recipe);
  return *found;
}

}  // namespace mantissa
