#include "report/html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "base/error.h"
#include "base/file.h"
#include "report/html_text.h"
#include "report/page_data.h"
#include "tests/report/synthetic.h"

namespace mantissa::report {
namespace {

using testing::TempDir;

// The page of a whole comparison; MANTISSA_REPORT_KEEP names a folder that keeps it to be looked at.
std::string compare_page(const testing::SyntheticOptions& options, const char* name) {
  const TempDir temp;
  testing::write_compare(temp.path(), options);
  const auto out = temp.path() / "report.html";
  write_report({temp.path()}, out);
  const std::string page = read_text(out.string());
  if (const char* keep = std::getenv("MANTISSA_REPORT_KEEP")) testing::write_file(std::string(keep) + "/" + name, page);
  return page;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST(Html, WholeComparison) {
  const std::string page = compare_page({}, "compare.html");
  for (const char* id : {"result", "comparison", "curves", "quantization", "memory", "mfu", "setup", "method"})
    EXPECT_EQ(count(page, std::string("<section id=\"") + id + "\""), 1u) << id;
  EXPECT_EQ(count(page, "<tr class=\"emulated\""), 18u);
  EXPECT_EQ(count(page, "<tr class=\"baseline\""), 2u);
  EXPECT_NE(page.find("For speed, pick bf16 with bf16 weights"), std::string::npos);
  EXPECT_NE(page.find("6c2d5cf0f3c4f6ae"), std::string::npos);
  EXPECT_LT(page.size(), size_t{3} << 20);
}

TEST(Html, SelfContained) {
  const std::string page = compare_page({.steps = 40}, "short.html");
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=[\"'](?!#|data:)", std::regex::icase)));
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_EQ(page.find("@import"), std::string::npos);
  EXPECT_EQ(page.find("sourceMappingURL"), std::string::npos);
}

TEST(Html, EscapesEveryText) {
  const std::string nasty = "</script><script>alert(1)</script><img src=x onerror=\"alert('2')\">&";
  const std::string page = compare_page({.steps = 20, .data_name = nasty}, "nasty.html");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_NE(page.find("&lt;img src=x onerror=&quot;alert(&#39;2&#39;)&quot;&gt;&amp;"), std::string::npos);
  // One closing tag for each script that the page itself opens.
  EXPECT_EQ(count(page, "</script>"), has_charts() ? 5u : 4u);
}

TEST(Html, HostileLayerNameStaysData) {
  const TempDir temp;
  testing::write_run(temp.path(), {"fp32", "mxfp8", "linear"}, {.steps = 20});
  testing::write_file(
      temp.path() / "metrics.jsonl",
      "{\"step\":1,\"tokens\":5,\"seconds\":1,\"loss\":2}\n"
      "{\"step\":1,\"quantization\":[{\"layer\":\"</script><b>\",\"tensor\":\"input\",\"amax\":1,\"scale\":1,"
      "\"snr_db\":3,\"saturated\":0,\"flushed\":0}]}\n");
  const std::string page = render_html(read_all({temp.path()}));
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>\\u003cb>"), std::string::npos);
}

TEST(Html, IncompleteComparison) {
  const std::string page = compare_page({.steps = 60, .ended = 7}, "incomplete.html");
  EXPECT_NE(page.find("7 of 20 rows have ended"), std::string::npos);
  EXPECT_EQ(count(page, "<tr class=\"emulated\""), 5u);
}

TEST(Html, NothingEndedYet) {
  const std::string page = compare_page({.steps = 30, .ended = 0}, "started.html");
  EXPECT_NE(page.find("No row has ended yet."), std::string::npos);
}

TEST(Html, SingleRun) {
  const TempDir temp;
  testing::write_run(temp.path(), {"fp32", "nvfp4", "linear+logits"}, {.steps = 120});
  const std::string page = render_html(read_all({temp.path()}));
  EXPECT_NE(page.find("quickstart ended at a loss of"), std::string::npos);
  EXPECT_NE(page.find("which is not the format&#39;s speed"), std::string::npos);
  EXPECT_NE(page.find("Recipe of each layer"), std::string::npos);
  if (const char* keep = std::getenv("MANTISSA_REPORT_KEEP"))
    testing::write_file(std::string(keep) + "/single.html", page);
}

TEST(Html, ErrorsOfTheVerb) {
  EXPECT_THROW(write_report({}, "/nowhere/report.html"), Error);
  const TempDir temp;
  try {
    write_report({temp.path() / "absent"}, temp.path() / "report.html");
    FAIL() << "a missing directory was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kInput);
    EXPECT_NE(std::string(error.what()).find("no such directory"), std::string::npos) << error.what();
  }
}

TEST(Html, EscapedHandlesBrokenUtf8) {
  EXPECT_EQ(escaped("a<b>\"'&"), "a&lt;b&gt;&quot;&#39;&amp;");
  EXPECT_EQ(escaped("Δ – …"), "Δ – …");
  EXPECT_EQ(escaped(std::string("a\xFF"
                                "b\xC0\x80")),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escaped(std::string_view("\x00\x1B[", 3)), "\xEF\xBF\xBD\xEF\xBF\xBD[");
  EXPECT_EQ(escaped("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST(PageData, ThinnedKeepsEndsAndSpikes) {
  std::vector<StepLine> lines(50'000);
  for (size_t i = 0; i < lines.size(); ++i)
    lines[i] = {.step = static_cast<int64_t>(i),
                .loss = 2.0 - 1e-5 * static_cast<double>(i),
                .grad_norm = 1.0,
                .lr = 1e-3,
                .tokens_per_s = 100.0,
                .mfu = {}};
  lines[33'333].loss = 9.0;
  lines[12'345].grad_norm = 50.0;
  lines[777].tokens_per_s = 1.0;
  const std::vector<size_t> kept = thinned(lines);
  EXPECT_LE(kept.size(), kMaxPoints);
  EXPECT_GE(kept.size(), kMaxPoints / 4);
  for (const size_t index : {size_t{0}, size_t{777}, size_t{12'345}, size_t{33'333}, lines.size() - 1})
    EXPECT_TRUE(std::binary_search(kept.begin(), kept.end(), index)) << index;
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  lines.resize(kMaxPoints);
  EXPECT_EQ(thinned(lines).size(), kMaxPoints);
}

TEST(PageData, DeltaIsPairedByStepAndKeepsItsMeanWhenThinned) {
  ReportData data;
  data.compare.emplace();
  data.runs.resize(2);
  for (int r = 0; r < 2; ++r) {
    report::Run& run = data.runs[static_cast<size_t>(r)];
    run.row = {.weights = "fp32", .recipe = r ? "mxfp8" : "bf16", .scope = r ? "linear" : "none"};
    for (int i = 0; i < 9000; ++i) {
      const double jitter = ((i * 7919) % 101) / 50.0;  // the same batches in both runs
      run.metrics.steps.push_back(
          {.step = i + 1, .loss = 2.0 + jitter + 0.25 * r, .grad_norm = {}, .lr = {}, .tokens_per_s = {}, .mfu = {}});
    }
  }
  const Json page = page_data(data);
  EXPECT_TRUE(page["series"][0]["delta"].is_null());
  const Json& delta = page["series"][1]["delta"];
  EXPECT_LE(delta.size(), kMaxPoints);
  EXPECT_EQ(delta.size(), page["series"][1]["step"].size());
  for (const Json& value : delta) EXPECT_NEAR(value.get<double>(), 0.25, 1e-9);
}

TEST(PageData, FewDigits) {
  EXPECT_EQ(rounded(1.23456789).dump(), "1.23457");
  EXPECT_EQ(rounded(40620.0).dump(), "40620");
  EXPECT_EQ(rounded({}).dump(), "null");
  EXPECT_EQ(rounded(std::nan("")).dump(), "null");
}

}  // namespace
}  // namespace mantissa::report
