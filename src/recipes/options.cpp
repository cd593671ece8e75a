#include <map>

#include "recipes/recipe.h"

namespace mantissa {

void RecipeOptions::describe(config::Fields& f) {
  f.choice("format", format, {"auto", "hybrid", "e4m3"},
           "FP8 elements: hybrid = E4M3 forward, E5M2 gradients; auto = the recipe's default");
  f.integer("margin", margin, "fp8-delayed: scales are 2^-margin of what the amax allows", {.min = 0, .max = 64});
  f.integer("amax_history_len", amax_history_len, "fp8-delayed: updates that the amax history spans",
            {.min = 1, .max = 1 << 20});
  f.choice("amax_compute_algo", amax_compute_algo, {"max", "most_recent"},
           "fp8-delayed: which amax of the history counts");
  f.choice("scales", scales, {"auto", "pow2", "fp32"},
           "fp8-tensorwise (auto = fp32), fp8-blockwise (auto = pow2): values a scale may take");
  f.boolean("disable_rht", disable_rht, "nvfp4: no random Hadamard transform before the casts that wgrad reads");
  f.boolean("disable_stochastic_rounding", disable_stochastic_rounding, "nvfp4: gradients round to nearest");
  f.boolean("disable_2d_quantization", disable_2d_quantization, "nvfp4: weights in 1x16 blocks instead of 16x16");
  f.boolean("enable_2d_quantization", enable_2d_quantization, "mxfp8: weights in 32x32 blocks instead of 1x32");
}

namespace {

// Collects name -> value of flat fields as text.
class Collector final : public config::Fields {
 public:
  std::map<std::string, std::string> values;

  void text(std::string_view key, std::string& value, std::string_view) override { put(key, value); }
  void choice(std::string_view key, std::string& value, std::vector<std::string>, std::string_view,
              std::string_view) override {
    put(key, value);
  }
  void number(std::string_view key, double& value, std::string_view, config::Range) override {
    put(key, fmt::format("{}", value));
  }
  void integer(std::string_view key, int64_t& value, std::string_view, config::Range) override {
    put(key, fmt::format("{}", value));
  }
  void boolean(std::string_view key, bool& value, std::string_view) override { put(key, value ? "true" : "false"); }
  void numbers(std::string_view key, std::vector<double>&, std::string_view) override { refuse(key); }
  void integers(std::string_view key, std::vector<int64_t>&, std::string_view) override { refuse(key); }
  void texts(std::string_view key, std::vector<std::string>&, std::string_view) override { refuse(key); }
  void unavailable(std::string_view, std::string_view) override {}
  void section(std::string_view key, const std::function<void(Fields&)>&) override { refuse(key); }
  void list(std::string_view key, size_t&, const std::function<void(Fields&, size_t)>&, std::string_view) override {
    refuse(key);
  }

 private:
  void put(std::string_view key, std::string value) { values.emplace(key, std::move(value)); }
  static void refuse(std::string_view key) { check(false, "recipe option {} is not a plain value", key); }
};

}  // namespace

void refuse_unread_options(RecipeOptions options, const std::vector<const RecipeEntry*>& in_use) {
  Collector given, defaults;
  options.describe(given);
  RecipeOptions().describe(defaults);
  for (const auto& [key, value] : given.values) {
    if (value == defaults.values.at(key)) continue;
    bool read = false;
    std::string names;
    for (const RecipeEntry* entry : in_use) {
      for (const char* name : entry->options) read |= key == name;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", entry->name);
    }
    if (read) continue;
    std::string readers;
    for (const RecipeEntry& entry : recipe_table())
      for (const char* name : entry.options)
        if (key == name) readers += fmt::format("{}{}", readers.empty() ? "" : ", ", entry.name);
    fail(Exit::kUsage, "{}: {} is set, but {} does not read it (read by {})", key, value, names, readers);
  }
}

}  // namespace mantissa
