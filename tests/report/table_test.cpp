#include "report/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace mantissa::report {
namespace {

CompareRow row(const char* weights, const char* recipe, const char* scope, double loss, Number delta, double speed) {
  CompareRow r{.weights = weights, .recipe = recipe, .scope = scope};
  r.path = std::string(scope) == "none" ? "native" : "emulated";
  r.loss = loss;
  r.eval_loss = loss + 0.04;
  r.delta_loss = delta;
  r.tokens_per_s = speed;
  r.mfu = 0.4812;
  r.memory_pct = 67.94;
  return r;
}

CompareResult small() {
  CompareResult result;
  result.baseline = "bf16 recipe of the same weights";
  result.rows = {row("fp32", "bf16", "none", 1.3667, 0.0, 40620),
                 row("bf16", "nvfp4", "linear+logits+norm", 1.4, 0.0333, 9876.4)};
  result.rows.push_back({.weights = "fp32", .recipe = "mxfp8", .scope = "linear"});
  result.planned = 3;
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

constexpr const char* kNotes120 =
    "2 of 3 rows have ended.\n"
    "loss: mean of the last tenth of the steps, nats a token; Δ loss: against the bf16 recipe of the same weights.\n"
    "emulated: exact arithmetic of the format on other hardware; tok/s and MFU of these rows are the emulation's, not "
    "the\n"
    "format's.\n";

TEST(Table, Snapshot120) {
  EXPECT_EQ(
      render_compare_table(small(), {.width = 120}),
      std::string("#  weights  recipe  scope               MFU %   tok/s    loss   Δ loss    eval  mem %  GEMMs\n"
                  "1  fp32     bf16    –                    48.1  40,620  1.3667        –  1.4067   67.9  native\n"
                  "2  bf16     nvfp4   linear+logits+norm   48.1   9,876  1.4000  +0.0333  1.4400   67.9  emulated\n"
                  "3  fp32     mxfp8   linear                  …       …       …        …       …      …  …\n") +
          kNotes120);
}

TEST(Table, Snapshot200IsNotWider) {
  const auto at120 = lines_of(render_compare_table(small(), {.width = 120}));
  const auto at200 = lines_of(render_compare_table(small(), {.width = 200}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(at200[i], at120[i]);
}

TEST(Table, Snapshot80LeavesOutTheLeastImportant) {
  const std::string text = render_compare_table(small(), {.width = 80});
  EXPECT_EQ(text.substr(0, text.find("2 of 3")),
            "#  weights  recipe  scope                tok/s    loss   Δ loss  GEMMs\n"
            "1  fp32     bf16    –                   40,620  1.3667        –  native\n"
            "2  bf16     nvfp4   linear+logits+norm   9,876  1.4000  +0.0333  emulated\n"
            "3  fp32     mxfp8   linear                   …       …        …  …\n"
            "left out at 80 columns: MFU %, eval, mem %.\n");
}

TEST(Table, NoLineExceedsTheWidth) {
  for (const int width : {60, 72, 80, 100, 120, 200})
    for (const std::string& line : lines_of(render_compare_table(small(), {.width = width})))
      EXPECT_LE(display_width(line), width) << line;
}

TEST(Table, EmulatedMarkIsAmongTheLastToGo) {
  const std::string text = render_compare_table(small(), {.width = 72});
  EXPECT_NE(text.find("GEMMs"), std::string::npos);
  EXPECT_NE(text.find("emulated\n"), std::string::npos);
}

TEST(Table, ColourOnlyWhenAsked) {
  EXPECT_EQ(render_compare_table(small(), {.width = 120}).find('\x1b'), std::string::npos);
  const std::string text = render_compare_table(small(), {.width = 120, .color = true});
  const auto lines = lines_of(text);
  EXPECT_TRUE(lines[0].starts_with("\x1b[1m"));
  EXPECT_FALSE(lines[1].starts_with("\x1b"));
  EXPECT_TRUE(lines[2].starts_with("\x1b[2m"));
}

TEST(Table, SpreadStandsBesideTheDifference) {
  CompareResult result = small();
  for (CompareRow& r : result.rows)
    if (r.ended()) r.loss_spread = 0.05, r.delta_spread = 0.0012;
  const std::string text = render_compare_table(result, {.width = 200});
  EXPECT_NE(text.find("+0.0333 ±0.0012"), std::string::npos);
  EXPECT_EQ(text.find("0.05"), std::string::npos);  // what a seed moves in both rows is no doubt about their difference
  EXPECT_NE(text.find("±: standard deviation of the paired Δ over seeds"), std::string::npos);
}

TEST(Table, NoNameSteersTheTerminal) {
  CompareResult odd = small();
  odd.rows[0].recipe =
      "a\x1b]0;x\x07\n\xe2\x80\xae"
      "b\xff";
  odd.baseline = "\x1b[31mred";
  const std::string text = render_compare_table(odd, {.width = 300});
  EXPECT_NE(text.find("a\\x1b]0;x\\x07\\n\\u{202e}b\\xff"), std::string::npos) << text;
  for (const char* raw : {"\x1b", "\xe2\x80\xae", "\x07", "\xff"}) EXPECT_EQ(text.find(raw), std::string::npos);
}

TEST(Table, Markdown) {
  const std::string text = render_markdown(compare_table(small()));
  const auto lines = lines_of(text);
  EXPECT_EQ(lines[0], "| # | weights | recipe | scope | MFU % | tok/s | loss | Δ loss | eval | mem % | GEMMs |");
  EXPECT_EQ(lines[1], "|---:|---|---|---|---:|---:|---:|---:|---:|---:|---|");
  EXPECT_EQ(lines[3],
            "| 2 | bf16 | nvfp4 | linear+logits+norm | 48.1 | 9,876 | 1.4000 | +0.0333 | 1.4400 | 67.9 | emulated |");
  CompareResult odd = small();
  odd.rows[0].recipe = "a|b";
  EXPECT_NE(render_markdown(compare_table(odd)).find("a\\|b"), std::string::npos);
  odd.rows[0].recipe = "<img src=x>[a](b)`c`*d*_e_\\&amp;\n";
  EXPECT_NE(render_markdown(compare_table(odd)).find("\\<img src=x\\>\\[a\\](b)\\`c\\`\\*d\\*\\_e\\_\\\\\\&amp;"),
            std::string::npos)
      << render_markdown(compare_table(odd));
}

TEST(Table, WidthsAndFigures) {
  EXPECT_EQ(display_width("Δ loss"), 6);
  EXPECT_EQ(display_width("–"), 1);
  EXPECT_EQ(grouped(40620.4), "40,620");
  EXPECT_EQ(grouped(999.0), "999");
  EXPECT_EQ(grouped(1234567.0), "1,234,567");
  EXPECT_EQ(grouped(-123456.0), "-123,456");
  EXPECT_EQ(grouped({}), "–");
  EXPECT_EQ(fixed(0.00004, 4, true), "+0.0000");
  EXPECT_EQ(fixed({}, 2), "–");
}

}  // namespace
}  // namespace mantissa::report
