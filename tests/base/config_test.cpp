#include "base/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config_difference.h"
#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa::config {
namespace {

using testing::error_of;
using testing::TempFolder;

struct Rule {
  std::string match, recipe = "bf16";
  void describe(Fields& f) {
    f.text("match", match, "layers it holds for");
    f.choice("recipe", recipe, {"bf16", "fp8-delayed", "nvfp4"}, "recipe of these layers");
  }
};

struct Config {
  std::string name = "run", recipe = "bf16", train;
  int64_t seed = 42, tokens = 1024;
  double lr = 1e-3;
  bool deterministic = true;
  std::vector<double> betas = {0.9, 0.95};
  std::vector<int64_t> sizes;
  std::vector<std::string> recipes = {"fp8-delayed", "nvfp4"};
  std::vector<Rule> rules;

  void describe(Fields& f) {
    f.section("run", [&](Fields& g) {
      g.text("name", name, "name of the run");
      g.integer("seed", seed, "seed of everything drawn", {.min = 0});
      g.boolean("deterministic", deterministic, "same bits from two runs");
    });
    f.section("data", [&](Fields& g) {
      g.text("train", train, "file with the training text");
      g.integers("sizes", sizes, "some sizes");
      g.unavailable("tokenizer", "Hugging Face tokenizers come later; leave it out for bytes");
    });
    f.section("batch", [&](Fields& g) { g.integer("tokens", tokens, "tokens a step", {.min = 1, .max = 1e9}); });
    f.section("optimizer", [&](Fields& g) {
      g.number("lr", lr, "learning rate", {.min = 0});
      g.numbers("betas", betas, "AdamW's betas");
    });
    f.section("precision", [&](Fields& g) {
      g.choice("recipe", recipe, {"bf16", "fp8-delayed", "nvfp4"}, "precision recipe");
      g.texts("recipes", recipes, "recipes to compare");
      size_t n = rules.size();
      g.list(
          "rules", n,
          [&](Fields& h, size_t i) {
            if (rules.size() <= i) rules.resize(i + 1);
            rules[i].describe(h);
          },
          "recipes by layer");
      rules.resize(n);
    });
  }
};

Config read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  Config config;
  Source::from_text(yaml, "configs/a.yaml", overrides).read([&](Fields& f) { config.describe(f); });
  return config;
}

std::string refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return error_of(Exit::kUsage, [&] { read(yaml, overrides); });
}

TEST(Config, ReadsEveryType) {
  const Config c = read(R"(
run: {name: "a run", seed: 7, deterministic: false}
data: {train: x/y.txt, sizes: [1, 2, 3]}
batch:
  tokens: 1e6
optimizer: {lr: 2e-5, betas: [0.9, 0.999]}
precision:
  recipe: fp8-delayed
  recipes: []
  rules:
    - {match: "layers.0.*"}
    - match: layers.{-1}
      recipe: nvfp4
)");
  EXPECT_EQ(c.name, "a run");
  EXPECT_EQ(c.seed, 7);
  EXPECT_FALSE(c.deterministic);
  EXPECT_EQ(c.train, "x/y.txt");
  EXPECT_EQ(c.sizes, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(c.tokens, 1000000);
  EXPECT_EQ(c.lr, 2e-5);
  EXPECT_EQ(c.betas, (std::vector<double>{0.9, 0.999}));
  EXPECT_EQ(c.recipe, "fp8-delayed");
  EXPECT_TRUE(c.recipes.empty());
  ASSERT_EQ(c.rules.size(), 2u);
  EXPECT_EQ(c.rules[0].recipe, "bf16");
  EXPECT_EQ(c.rules[1].match, "layers.{-1}");
  EXPECT_EQ(c.rules[1].recipe, "nvfp4");
}

TEST(Config, EmptyFilesAndSectionsKeepDefaults) {
  for (const char* yaml : {"", "# nothing\n", "run:\n", "run: {}\ndata:\n"}) EXPECT_EQ(read(yaml).seed, 42) << yaml;
}

TEST(Config, LaterOverridesWin) {
  const Config c =
      read("run: {seed: 1}\nprecision: {rules: [{match: a}, {match: b}]}\n",
           {"--run.seed=2", "run.seed=3", "--optimizer.betas=[0.5, 0.25]", "precision.rules.1.recipe=nvfp4",
            "run.name=a: b # c", "data={train: t, sizes: [4]}", "--precision.recipes=[bf16]"});
  EXPECT_EQ(c.seed, 3);
  EXPECT_EQ(c.betas, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(c.rules[1].recipe, "nvfp4");
  EXPECT_EQ(c.rules[1].match, "b");
  EXPECT_EQ(c.name, "a: b # c");
  EXPECT_EQ(c.train, "t");
  EXPECT_EQ(c.sizes, (std::vector<int64_t>{4}));
  EXPECT_EQ(c.recipes, (std::vector<std::string>{"bf16"}));
  EXPECT_EQ(read("run: {name: x}", {"run.name="}).name, "");
}

TEST(Config, EnvironmentVariables) {
  ASSERT_EQ(setenv("MANTISSA_TEST_PLACE", "/data", 1), 0);
  ASSERT_EQ(unsetenv("MANTISSA_TEST_NONE"), 0);
  EXPECT_EQ(read("data: {train: '${MANTISSA_TEST_PLACE}/x/${MANTISSA_TEST_PLACE}'}").train, "/data/x//data");
  EXPECT_EQ(read("data: {train: \"a$${b}c$d\"}").train, "a${b}c$d");
  EXPECT_EQ(read("", {"data.train=${MANTISSA_TEST_PLACE}"}).train, "/data");
  EXPECT_EQ(refusal("run:\n  name: ${MANTISSA_TEST_NONE}"),
            "configs/a.yaml:2: ${MANTISSA_TEST_NONE}: the environment has no MANTISSA_TEST_NONE");
  EXPECT_EQ(refusal("run: {name: 'a${b'}"), "configs/a.yaml:1: \"${b\" is no ${VAR}; write $${ for a literal ${");
}

// A brace ends a value in flow style; that of a variable does not.
TEST(Config, VariablesInFlowStyle) {
  ASSERT_EQ(setenv("MANTISSA_TEST_PLACE", "/data, {x}", 1), 0);
  EXPECT_EQ(read("data: {train: ${MANTISSA_TEST_PLACE}/x, sizes: [1]}").train, "/data, {x}/x");
  EXPECT_EQ(read("", {"precision.recipes=[a-${MANTISSA_TEST_PLACE}, b]"}).recipes,
            (std::vector<std::string>{"a-/data, {x}", "b"}));
  EXPECT_EQ(refusal("run: {name: ${1X}}"), "configs/a.yaml:1: \"${1X}\" is no ${VAR}; write $${ for a literal ${");
  EXPECT_EQ(refusal("run: {${X}: 1}"),
            "configs/a.yaml:1: \"${X}\" is no key; keys are words of letters, digits, _ and -");
  EXPECT_EQ(refusal("run: {name: \"\xef\xb7\x90\"}"),
            "configs/a.yaml: holds U+FDD0 or U+FDD1, which are no characters");
}

TEST(Config, TextIsUtf8) {
  for (const char* bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_NE(refusal(fmt::format("run: {{name: 'a{}b'}}", bad)).find("is not UTF-8"), std::string::npos) << bad;
    EXPECT_NE(refusal("", {fmt::format("run.name=a{}b", bad)}).find("command line: \"run.name=a"), std::string::npos);
    ASSERT_EQ(setenv("MANTISSA_TEST_BAD", bad, 1), 0);
    EXPECT_NE(refusal("run: {name: '${MANTISSA_TEST_BAD}'}").find("a.yaml:1: ${MANTISSA_TEST_BAD}: "),
              std::string::npos);
  }
  for (const char* good : {"ä", "\xe2\x82\xac", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"})
    EXPECT_EQ(read(fmt::format("run: {{name: 'a{}b'}}", good)).name, fmt::format("a{}b", good));
}

// Process substitution and standard input come as pipes, which have no size.
TEST(Config, ComesFromAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  constexpr std::string_view kYaml = "run: {seed: 9}\n";
  ASSERT_EQ(write(ends[1], kYaml.data(), kYaml.size()), static_cast<ssize_t>(kYaml.size()));
  ASSERT_EQ(close(ends[1]), 0);
  Config config;
  Source::from_file(fmt::format("/dev/fd/{}", ends[0]), {}).read([&](Fields& f) { config.describe(f); });
  EXPECT_EQ(config.seed, 9);
  ASSERT_EQ(close(ends[0]), 0);
  EXPECT_EQ(error_of(Exit::kUsage, [] { Source::from_file("/dev/zero", {}); }),
            "/dev/zero: has more than 1048576 bytes");
}

TEST(Config, FirstDifference) {
  const auto text = [](const Difference& d) { return d.key + ": " + d.first + " | " + d.second; };
  EXPECT_EQ(text(first_difference("a: {b: 1, c: [x, y]}", "a: {b: 1, c: [x, z], d: 2}")), "a.c[1]: y | z");
  EXPECT_EQ(text(first_difference("a: {b: 1}", "a: {b: 1, d: ''}")), "a.d: nothing | \"\"");
  EXPECT_EQ(text(first_difference("a: {b: []}", "a: {b: [1]}")), "a.b: [] | nothing");
  EXPECT_EQ(first_difference("a: {b: 1, c: 2}", "a: {c: 2, b: 1}").key, "");
  EXPECT_EQ(first_difference("a: {b: 1, c: 2}", "a: {b: 2, c: 3}", {"a.b"}).key, "a.c");
}

TEST(Config, UnknownKeysNameTheNearest) {
  EXPECT_EQ(refusal("run: {seed: 1}\n\n\n\n\nprecision:\n  recipie: bf16\n"),
            "configs/a.yaml:7: precision.recipie: unknown key; did you mean precision.recipe?");
  EXPECT_EQ(refusal("precison: {recipe: bf16}"), "configs/a.yaml:1: precison: unknown key; did you mean precision?");
  EXPECT_EQ(refusal("seed: 3"), "configs/a.yaml:1: seed: unknown key; did you mean run.seed?");
  EXPECT_EQ(refusal("run: {lr: 3}"), "configs/a.yaml:1: run.lr: unknown key; did you mean optimizer.lr?");
  EXPECT_EQ(refusal("run: {xyzzyx: 3}"),
            "configs/a.yaml:1: run.xyzzyx: unknown key; known here: deterministic, name, seed");
  EXPECT_EQ(refusal("precision:\n  rules:\n    - match: a\n      recipee: bf16"),
            "configs/a.yaml:4: precision.rules[0].recipee: unknown key; did you mean precision.rules[0].recipe?");
  EXPECT_EQ(refusal("", {"--precision.recipie=bf16"}),
            "command line: precision.recipie: unknown key; did you mean precision.recipe?");
}

TEST(Config, WrongTypes) {
  EXPECT_EQ(refusal("batch:\n  tokens: many"),
            "configs/a.yaml:2: batch.tokens: found \"many\", expected a whole number");
  EXPECT_EQ(refusal("batch: {tokens: 1.5}"), "configs/a.yaml:1: batch.tokens: found \"1.5\", expected a whole number");
  EXPECT_EQ(refusal("batch: {tokens: [1]}"), "configs/a.yaml:1: batch.tokens: found a list, expected a whole number");
  EXPECT_EQ(refusal("batch: {tokens: }"), "configs/a.yaml:1: batch.tokens: found nothing, expected a whole number");
  EXPECT_EQ(refusal("batch: {tokens: 99999999999999999999}"),
            "configs/a.yaml:1: batch.tokens: found \"99999999999999999999\", expected a whole number");
  EXPECT_EQ(refusal("optimizer: {lr: fast}"), "configs/a.yaml:1: optimizer.lr: found \"fast\", expected a number");
  EXPECT_EQ(refusal("optimizer: {lr: nan}"), "configs/a.yaml:1: optimizer.lr: found \"nan\", expected a number");
  EXPECT_EQ(refusal("optimizer: {lr: 1e999}"), "configs/a.yaml:1: optimizer.lr: found \"1e999\", expected a number");
  EXPECT_EQ(refusal("optimizer: {betas: 0.9}"),
            "configs/a.yaml:1: optimizer.betas: found \"0.9\", expected a list of numbers, as [a, b]");
  EXPECT_EQ(refusal("optimizer: {betas: [0.9, x]}"),
            "configs/a.yaml:1: optimizer.betas[1]: found \"x\", expected a number");
  EXPECT_EQ(refusal("run: {deterministic: maybe}"),
            "configs/a.yaml:1: run.deterministic: found \"maybe\", expected true or false");
  EXPECT_EQ(refusal("run: {name: {a: b}}"), "configs/a.yaml:1: run.name: found a section, expected text");
  EXPECT_EQ(refusal("run: 3"), "configs/a.yaml:1: run: found \"3\", expected a section of keys");
  EXPECT_EQ(refusal("precision: {rules: {a: b}}"),
            "configs/a.yaml:1: precision.rules: found a section, expected a list of sections");
  EXPECT_EQ(refusal("precision: {rules: [a]}"),
            "configs/a.yaml:1: precision.rules[0]: found \"a\", expected a section of keys");
}

TEST(Config, RangesAndChoices) {
  EXPECT_EQ(refusal("optimizer: {lr: -1}"), "configs/a.yaml:1: optimizer.lr: found -1, expected at least 0");
  EXPECT_EQ(refusal("batch: {tokens: 0}"), "configs/a.yaml:1: batch.tokens: found 0, expected 1 to 1000000000");
  EXPECT_EQ(
      refusal("precision: {recipe: fp8-delay}"),
      "configs/a.yaml:1: precision.recipe: found \"fp8-delay\", expected one of bf16, fp8-delayed, nvfp4; did you mean "
      "fp8-delayed?");
  EXPECT_EQ(refusal("precision: {recipe: int3}"),
            "configs/a.yaml:1: precision.recipe: found \"int3\", expected one of bf16, fp8-delayed, nvfp4");
  EXPECT_EQ(refusal("", {"precision.recipe=fp4"}),
            "command line: precision.recipe: found \"fp4\", expected one of bf16, fp8-delayed, nvfp4");
  EXPECT_EQ(refusal("", {"precision.recipe=fp8"}),
            "command line: precision.recipe: found \"fp8\", expected one of bf16, fp8-delayed, nvfp4; did you mean "
            "fp8-delayed?");
}

TEST(Config, UnavailableKeys) {
  EXPECT_EQ(refusal("data:\n  tokenizer: gpt2"),
            "configs/a.yaml:2: data.tokenizer: Hugging Face tokenizers come later; leave it out for bytes");
}

TEST(Config, DuplicateKeys) {
  EXPECT_EQ(refusal("run:\n  seed: 1\n  name: x\n  seed: 2\n"),
            "configs/a.yaml:4: run.seed: given twice, first at configs/a.yaml:2");
  EXPECT_EQ(refusal("run: {seed: 1}\nrun: {name: x}\n"),
            "configs/a.yaml:2: run: given twice, first at configs/a.yaml:1");
  EXPECT_EQ(refusal("precision: {rules: [{match: a}, {match: b, match: c}]}"),
            "configs/a.yaml:1: precision.rules[1].match: given twice, first at configs/a.yaml:1");
}

TEST(Config, BrokenFiles) {
  const TempFolder folder;
  EXPECT_EQ(error_of(Exit::kUsage, [&] { Source::from_file(folder / "none.yaml", {}); }),
            (folder / "none.yaml") + ": no such config file");
  EXPECT_EQ(error_of(Exit::kUsage, [&] { Source::from_file(folder.path(), {}); }),
            folder.path() + ": is a folder, expected a file");
  EXPECT_TRUE(refusal("run: {name: x\nbatch: 3").starts_with("configs/a.yaml:"));
  EXPECT_EQ(refusal("[1, 2]"), "configs/a.yaml: is a list, expected sections of keys");
  EXPECT_EQ(refusal("just words"), "configs/a.yaml: is text, expected sections of keys");
  EXPECT_EQ(refusal("run: {seed: 1}\n---\nrun: {seed: 2}\n"), "configs/a.yaml: holds a second document, expected one");
  EXPECT_EQ(refusal("run: {? [a] : 3}"), "configs/a.yaml:1: a key is a list or a section, expected a word");
  EXPECT_EQ(refusal("\"run.seed\": 3"),
            "configs/a.yaml:1: \"run.seed\" is no key; keys are words of letters, digits, _ and -");
  EXPECT_EQ(refusal("", {"--seed"}), "command line: \"--seed\" is no override; write --section.key=value");
  EXPECT_EQ(refusal("", {"precision.rules.0.match=x"}),
            "command line: precision.rules: found a section, expected a list of sections");
  EXPECT_EQ(refusal("precision: {rules: [{match: a}]}", {"precision.rules.1.match=x"}),
            "command line: precision.rules.1: expected a place in the list, 0 to 0");
}

TEST(Config, BombsAreBounded) {
  EXPECT_EQ(refusal("a: " + std::string(40, '[') + std::string(40, ']')), "configs/a.yaml:1: nested more than 32 deep");
  refusal("a: " + std::string(200000, '['));
  refusal("a: " + std::string(200000, '{'));
  refusal(std::string(2 << 20, '#'));
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    laughs += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) laughs += fmt::format("{}*a{}", j == 0 ? "" : ", ", i - 1);
    laughs += "]\n";
  }
  EXPECT_EQ(refusal(laughs), "configs/a.yaml:5: more than 100000 values");
  refusal("a: &a [*a]");
  // Values in all, whether the environment or an alias repeats them.
  ASSERT_EQ(setenv("MANTISSA_TEST_BIG", std::string(100'000, 'x').c_str(), 1), 0);
  std::string big = "a: [", aliases = "a: &a " + std::string(100'000, 'x') + "\nb: [";
  for (int i = 0; i < 40'000; ++i) big += "${MANTISSA_TEST_BIG},", aliases += "*a ,";
  EXPECT_NE(refusal(big + "]").find("have more than 4194304 bytes"), std::string::npos);
  EXPECT_NE(refusal(aliases + "]").find("have more than 4194304 bytes"), std::string::npos);
  std::string value = "run.name=";
  for (int i = 0; i < 1000; ++i) value += "${MANTISSA_TEST_BIG}";
  EXPECT_NE(refusal("", {value}).find("have more than 4194304 bytes"), std::string::npos);
  EXPECT_EQ(read("run: {name: &n x}\ndata: {train: *n}").train, "x");
}

TEST(Config, DumpReadsBack) {
  Config c =
      read("precision: {rules: [{match: 'a b: #'}, {recipe: nvfp4}]}",
           {"run.name=null", "data.train=$${x} \"q\" \\ y", "optimizer.lr=3.0000000000000004e-05", "data.sizes=[1,2]"});
  const std::string text = dump([&](Fields& f) { c.describe(f); });
  const Config d = read(text);
  EXPECT_EQ(d.name, "null");
  EXPECT_EQ(d.train, "${x} \"q\" \\ y");
  EXPECT_EQ(d.lr, 3.0000000000000004e-05);
  EXPECT_EQ(d.sizes, c.sizes);
  ASSERT_EQ(d.rules.size(), 2u);
  EXPECT_EQ(d.rules[0].match, "a b: #");
  EXPECT_EQ(d.rules[1].recipe, "nvfp4");
  Config again = d;
  EXPECT_EQ(dump([&](Fields& f) { again.describe(f); }), text);
}

TEST(Config, DumpShowsOrigins) {
  Config c;
  const Source source =
      Source::from_text("run:\n  seed: 5\nprecision: {rules: [{match: m}]}\n", "configs/a.yaml", {"batch.tokens=7"});
  source.read([&](Fields& f) { c.describe(f); });
  EXPECT_EQ(dump([&](Fields& f) { c.describe(f); }, &source),
            "run:\n"
            "  name: run                      # default\n"
            "  seed: 5                        # configs/a.yaml:2\n"
            "  deterministic: true            # default\n"
            "data:\n"
            "  train: \"\"                      # default\n"
            "  sizes: []                      # default\n"
            "batch:\n"
            "  tokens: 7                      # command line\n"
            "optimizer:\n"
            "  lr: 0.001                      # default\n"
            "  betas: [0.9, 0.95]             # default\n"
            "precision:\n"
            "  recipe: bf16                   # default\n"
            "  recipes: [fp8-delayed, nvfp4]  # default\n"
            "  rules:\n"
            "    - match: m                   # configs/a.yaml:3\n"
            "      recipe: bf16               # default\n");
}

TEST(Config, HelpListsKeys) {
  Config c;
  const std::string text = help([&](Fields& f) { c.describe(f); });
  EXPECT_NE(text.find("run.seed "), std::string::npos);
  EXPECT_NE(text.find("seed of everything drawn (integer, 42)"), std::string::npos);
  EXPECT_NE(text.find("precision.rules[].match"), std::string::npos);
  EXPECT_TRUE(c.rules.empty());
}

TEST(Config, Nearest) {
  EXPECT_EQ(nearest("recipie", {"recipe", "rules", "weights"}), "recipe");
  EXPECT_EQ(nearest("wieghts", {"recipe", "rules", "weights"}), "weights");
  EXPECT_EQ(nearest("zzz", {"recipe", "rules"}), "");
  EXPECT_EQ(nearest("rec", {"recipe", "rules"}), "recipe");
  EXPECT_EQ(nearest("re", {"recipe", "reference"}), "");
  EXPECT_EQ(nearest("", {"recipe"}), "");
}

}  // namespace
}  // namespace mantissa::config
