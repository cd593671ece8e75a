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
#include "report/page_policy.h"
#include "tests/base/child_cost.h"
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
            "a\\xffb\\xc0\\x80");
  EXPECT_EQ(escaped(std::string_view("\x00\x1B[", 3)), "\\x00\\x1b[");
  EXPECT_EQ(escaped("\xE2\x80\xAE<\xC2\x85"), "\\u{202e}&lt;\\u{85}");  // right-to-left override, next line
  EXPECT_EQ(escaped("a\nb\tc"), "a\nb\tc");
}

TEST(Html, DataHoldsNoControlOrDirectionMark) {
  const TempDir temp;
  testing::write_run(temp.path(), {"fp32", "mxfp8", "linear"}, {.steps = 20});
  const Json line = {
      {"step", 1},
      {"quantization", {{{"layer", "l\x1b\xE2\x80\xAE"}, {"tensor", "input"}, {"saturated", 0}, {"flushed", 0}}}}};
  testing::write_file(temp.path() / "metrics.jsonl",
                      "{\"step\":1,\"tokens\":5,\"seconds\":1,\"loss\":2}\n" + line.dump() + "\n");
  testing::write_file(temp.path() / "config.yaml", "name: \x1b[2J\xE2\x81\xA6\n");
  const std::string page = render_html(read_all({temp.path()}));
  EXPECT_NE(page.find("l\\\\x1b\\\\u{202e}"), std::string::npos);  // in the JSON
  EXPECT_NE(page.find("name: \\x1b[2J\\u{2066}"), std::string::npos);
  for (const char* raw : {"\x1b", "\xE2\x80\xAE", "\xE2\x81\xA6"}) EXPECT_EQ(page.find(raw), std::string::npos);
}

// The text of each element `name` that the browser would run or apply.
std::vector<std::string> inline_texts(const std::string& page, const std::string& name) {
  std::vector<std::string> texts;
  for (size_t at = page.find("<" + name + ">"); at != std::string::npos; at = page.find("<" + name + ">", at)) {
    at += name.size() + 2;
    texts.push_back(page.substr(at, page.find("</" + name + ">", at) - at));
  }
  return texts;
}

// openssl dgst -sha256 -binary | base64
TEST(PagePolicy, KnownHash) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(policy_source("abc"), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='");
}

TEST(PagePolicy, AllowsExactlyTheScriptsAndStylesOfThePage) {
  const TempDir temp;
  testing::write_compare(temp.path(), {.steps = 20, .ended = 2});
  const std::string sample = Json{{"step", 1}, {"tokens", 1}, {"prompt", "a"}, {"text", "<b style=x>"}}.dump() + "\n";
  testing::write_file(temp.path() / "rows/01-fp32-bf16/samples.jsonl", sample);
  const std::string page = render_html(read_all({temp.path()}));
  std::smatch meta;
  ASSERT_TRUE(
      std::regex_search(page, meta, std::regex("<meta http-equiv=\"Content-Security-Policy\" content=\"([^\"]*)\">")));
  const std::string policy = meta[1];
  std::string scripts, styles;
  for (const std::string& text : inline_texts(page, "script")) scripts += " " + policy_source(text);
  for (const std::string& text : inline_texts(page, "style")) styles += " " + policy_source(text);
  EXPECT_EQ(count(scripts, "sha256-"), has_charts() ? 4u : 3u);
  EXPECT_EQ(policy, "default-src 'none'; script-src" + scripts + "; style-src" + styles +
                        "; img-src data:; base-uri 'none'; form-action 'none'");
  EXPECT_LT(page.find("Content-Security-Policy"), page.find("<style>"));
  // Nothing inline stands outside of those: no attribute that is style or code, no script of another type but the data.
  const std::string body = page.substr(page.find("<body>"), page.find("<script type=") - page.find("<body>"));
  EXPECT_FALSE(std::regex_search(body, std::regex("<[^>]* (style|on[a-z]+)=")));
  EXPECT_EQ(count(page, "<script"), count(scripts, "sha256-") + 1);
  EXPECT_EQ(page.find("setAttribute(\"style\""), std::string::npos);  // blocked like a style attribute
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

TEST(PageData, QuantizationIsBoundedHoweverManyLayersAreNamed) {
  std::string text = "{\"step\":1,\"tokens\":5,\"seconds\":1,\"loss\":2}\n";
  for (int step = 1; step <= 2; ++step) {
    Json list = Json::array();
    for (int i = 0; i < 20'000; ++i)
      list.push_back({{"layer", fmt::format("l{}", i)}, {"tensor", "input"}, {"saturated", 0}, {"flushed", 0}});
    text += Json{{"step", step}, {"quantization", list}}.dump() + "\n";
  }
  const TempDir temp;
  testing::write_run(temp.path(), {"fp32", "mxfp8", "linear"}, {.steps = 20});
  testing::write_file(temp.path() / "metrics.jsonl", text);
  const auto cost = mantissa::testing::cost_of([&] { render_html(read_all({temp.path()})); });
  EXPECT_EQ(cost.code, 0) << cost.message;
  if (!mantissa::testing::kSanitized) {
    EXPECT_LT(cost.megabytes, 200);
    EXPECT_LT(cost.cpu_seconds, 2);
  }
  const ReportData data = read_all({temp.path()});
  const Json quantization = page_data(data)["series"][0]["quantization"];
  EXPECT_EQ(quantization["layers"].size(), kMaxQuantLayers);
  EXPECT_LE(quantization["snr_db"].size(), kMaxQuantCells);
  ASSERT_EQ(data.notes.size(), 1u);
  EXPECT_NE(data.notes[0].find("of 20000 layers; the page has those of the first 1024"), std::string::npos);
}

TEST(PageData, ManyLayersKeepFewerSteps) {
  ReportData data;
  data.runs.resize(1);
  for (int64_t step = 1; step <= 200; ++step)
    for (int layer = 0; layer < 1000; ++layer)
      data.runs[0].metrics.quantization.push_back({.step = step,
                                                   .layer = std::to_string(layer),
                                                   .tensor = layer % 3 == 0   ? "input"
                                                             : layer % 3 == 1 ? "weight"
                                                                              : "grad",
                                                   .snr_db = 3.0});
  const Json quantization = page_data(data)["series"][0]["quantization"];
  EXPECT_EQ(quantization["steps"].size(), kMaxQuantCells / 3000);
  EXPECT_EQ(quantization["steps"].back(), 200);
  EXPECT_LE(quantization["snr_db"].size(), kMaxQuantCells);
}

TEST(PageData, FewDigits) {
  EXPECT_EQ(rounded(1.23456789).dump(), "1.23457");
  EXPECT_EQ(rounded(40620.0).dump(), "40620");
  EXPECT_EQ(rounded({}).dump(), "null");
  EXPECT_EQ(rounded(std::nan("")).dump(), "null");
}

}  // namespace
}  // namespace mantissa::report
