#include "report/run_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/report/synthetic.h"

namespace mantissa::report {
namespace {

using testing::TempDir;

constexpr const char* kStep1 =
    "{\"step\":1,\"tokens\":10,\"seconds\":0.5,\"loss\":2.5,\"grad_norm\":1.5,\"lr\":0.001,"
    "\"tokens_per_s\":20,\"mfu\":0.4}\n";

Metrics metrics_of(const std::string& text) {
  const TempDir temp;
  testing::write_file(temp.path() / "metrics.jsonl", text);
  return read_metrics(temp.path() / "metrics.jsonl");
}

// The message of the Exit::kInput error that `body` ends with, without the temporary folder's name.
template <class Body>
std::string input_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kInput);
    const std::string message = error.what();
    const size_t name = message.find("metrics.jsonl");
    return name == std::string::npos ? message : message.substr(name);
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Metrics, ReadsEveryKindOfLine) {
  const Metrics m =
      metrics_of(std::string(kStep1) +
                 "{\"step\":1,\"tokens\":10,\"seconds\":0.6,\"eval_loss\":2.6}\n\n"
                 "{\"step\":1,\"quantization\":[{\"layer\":\"layers.0.mlp.down\",\"tensor\":\"grad\",\"amax\":3,"
                 "\"scale\":128,\"snr_db\":null,\"saturated\":0.25,\"flushed\":0.5}]}\n");
  ASSERT_EQ(m.steps.size(), 1u);
  EXPECT_EQ(m.steps[0].loss, 2.5);
  EXPECT_EQ(m.steps[0].tokens_per_s, 20);
  ASSERT_EQ(m.evals.size(), 1u);
  EXPECT_EQ(m.evals[0].eval_loss, 2.6);
  ASSERT_EQ(m.quantization.size(), 1u);
  EXPECT_FALSE(m.quantization[0].snr_db);
  EXPECT_EQ(m.quantization[0].flushed, 0.5);
  EXPECT_EQ(m.torn, 0);
  EXPECT_TRUE(m.unknown.empty());
}

TEST(Metrics, TornLastLineIsCounted) {
  const Metrics m = metrics_of(std::string(kStep1) + "{\"step\":2,\"tok");
  EXPECT_EQ(m.steps.size(), 1u);
  EXPECT_EQ(m.torn, 1);
}

TEST(Metrics, WholeLastLineWithoutNewlineCounts) {
  std::string text = kStep1;
  text.pop_back();
  const Metrics m = metrics_of(text);
  EXPECT_EQ(m.steps.size(), 1u);
  EXPECT_EQ(m.torn, 0);
}

TEST(Metrics, EmptyFile) { EXPECT_TRUE(metrics_of("").steps.empty()); }

TEST(Metrics, BrokenLineInsideNamesItsLine) {
  const std::string message = input_error([] { metrics_of(std::string(kStep1) + "{\"step\":2,\"tok\n" + kStep1); });
  EXPECT_TRUE(message.starts_with("metrics.jsonl:2: ")) << message;
  EXPECT_TRUE(input_error([] { metrics_of("{\"step\":1,\"loss\":nan}\n"); }).starts_with("metrics.jsonl:1: "));
}

TEST(Metrics, WrongTypesNameKeyFoundAndExpected) {
  EXPECT_EQ(input_error([] { metrics_of("{\"step\":1,\"tokens\":1,\"seconds\":1,\"loss\":\"low\"}\n"); }),
            "metrics.jsonl:1: loss: \"low\" found, expected a number");
  EXPECT_EQ(input_error([] { metrics_of("{\"step\":1.5}\n"); }),
            "metrics.jsonl:1: step: 1.5 found, expected an integer");
  EXPECT_EQ(input_error([] { metrics_of("{\"loss\":1}\n"); }), "metrics.jsonl:1: step: missing, expected an integer");
  EXPECT_EQ(input_error([] { metrics_of("[1]\n"); }), "metrics.jsonl:1: array found, expected an object");
  EXPECT_EQ(input_error([] { metrics_of("{\"step\":1,\"loss\":1}\n"); }),
            "metrics.jsonl:1: tokens: missing, expected a number");
  EXPECT_EQ(
      input_error([] {
        metrics_of(
            "{\"step\":1,\"quantization\":[{\"layer\":\"a\",\"tensor\":\"input\",\"saturated\":2,\"flushed\":0}]}\n");
      }),
      "metrics.jsonl:1: saturated: 2 found, expected a share from 0 to 1");
}

TEST(Metrics, UnknownKeysAreListedOnce) {
  const Metrics m = metrics_of("{\"step\":1,\"colour\":1}\n{\"step\":2,\"colour\":1,\"shape\":2}\n");
  EXPECT_EQ(m.unknown, (std::vector<std::string>{"colour", "shape"}));
}

TEST(Metrics, ResumedRunReplacesItsLines) {
  std::string text;
  for (const auto& [step, loss] : {std::pair{1, 5}, {2, 5}, {3, 5}, {2, 7}, {3, 7}, {4, 7}})
    text += fmt::format("{{\"step\":{},\"tokens\":1,\"seconds\":1,\"loss\":{}}}\n", step, loss);
  const Metrics m = metrics_of(text);
  ASSERT_EQ(m.steps.size(), 4u);
  EXPECT_EQ(m.steps[0].loss, 5);
  EXPECT_EQ(m.steps[1].loss, 7);
  EXPECT_EQ(m.rewound, 2);
}

TEST(Metrics, NullLossIsAGap) {
  const Metrics m = metrics_of("{\"step\":1,\"tokens\":1,\"seconds\":1,\"loss\":null}\n");
  ASSERT_EQ(m.steps.size(), 1u);
  EXPECT_FALSE(m.steps[0].loss);
}

TEST(Compare, ReadsTwentyRowsAndTheirRuns) {
  const TempDir temp;
  testing::write_compare(temp.path(), {.steps = 20});
  const ReportData data = read_all({temp.path()});
  ASSERT_TRUE(data.compare);
  EXPECT_EQ(data.compare->rows.size(), 20u);
  EXPECT_EQ(data.compare->ended(), 20);
  EXPECT_EQ(data.runs.size(), 20u);
  EXPECT_TRUE(data.runs[0].row.baseline());
  EXPECT_FALSE(data.runs[2].row.baseline());
  EXPECT_EQ(data.runs[2].metrics.steps.size(), 20u);
  EXPECT_TRUE(data.notes.empty());
}

TEST(Compare, IncompleteHasTheRowsThatStarted) {
  const TempDir temp;
  testing::write_compare(temp.path(), {.steps = 20, .ended = 3});
  const ReportData data = read_all({temp.path()});
  EXPECT_EQ(data.compare->ended(), 3);
  EXPECT_EQ(data.compare->planned, 20);
  EXPECT_EQ(data.runs.size(), 4u);  // the fourth is under way
  EXPECT_FALSE(data.runs[3].row.ended());
}

TEST(Compare, EndedRowWithoutDirectoryIsNoted) {
  const TempDir temp;
  testing::write_compare(temp.path(), {.steps = 20, .ended = 3});
  std::filesystem::remove_all(temp.path() / "rows/02-bf16-bf16");
  const ReportData data = read_all({temp.path()});
  EXPECT_EQ(data.runs.size(), 3u);
  ASSERT_EQ(data.notes.size(), 1u);
  EXPECT_NE(data.notes[0].find("its run directory is missing"), std::string::npos);
}

TEST(Compare, RefusesWhatItMustNotFollow) {
  const Json base = {{"rows", {{{"weights", "fp32"}, {"recipe", "bf16"}, {"scope", "none"}, {"dir", "../elsewhere"}}}}};
  EXPECT_NE(input_error([&] { parse_compare(base, "compare.json"); }).find("expected a folder inside"),
            std::string::npos);
  Json path = base;
  path["rows"][0] = {{"weights", "fp32"}, {"recipe", "bf16"}, {"scope", "none"}, {"loss", 1.0}, {"path", "magic"}};
  EXPECT_EQ(input_error([&] { parse_compare(path, "compare.json"); }),
            "compare.json: rows[0]: path: \"magic\" found, expected native or emulated");
  EXPECT_EQ(input_error([] { parse_compare(Json::object(), "compare.json"); }),
            "compare.json: rows: missing, expected a list");
}

// Two rows over three seeds: what a seed moves in both cancels in the difference.
TEST(Compare, SpreadOfADeltaIsPairedBySeed) {
  const auto row = [](const char* recipe, const char* scope, std::vector<double> losses) {
    return Json{{"weights", "fp32"}, {"recipe", recipe}, {"scope", scope},     {"path", "native"},
                {"loss", losses[1]}, {"losses", losses}, {"loss_spread", 0.1}, {"dir", recipe}};
  };
  const Json rows = {row("bf16", "none", {2.0, 2.1, 2.2}), row("mxfp8", "linear", {2.01, 2.13, 2.23})};
  const CompareResult result = parse_compare({{"rows", rows}, {"seeds", {1, 2, 3}}}, "compare.json");
  EXPECT_FALSE(result.rows[0].delta_spread);
  ASSERT_TRUE(result.rows[1].delta_spread);
  EXPECT_NEAR(*result.rows[1].delta_spread, 0.011547, 1e-6);  // of 0.01, 0.03, 0.03
}

TEST(Compare, RefusesWhatWouldGrow) {
  const auto row = [](const std::string& dir) {
    return Json{{"weights", "fp32"}, {"recipe", "bf16"}, {"scope", "none"}, {"dir", dir}};
  };
  EXPECT_EQ(input_error([&] {
              parse_compare({{"rows", {row("rows/a"), row("rows/./a")}}}, "compare.json");
            }),
            "compare.json: rows[1]: dir: rows/./a is the folder of rows[0] too");
  Json many = Json::array();
  for (size_t i = 0; i <= kMaxRows; ++i) many.push_back(row(std::to_string(i)));
  EXPECT_EQ(input_error([&] {
              parse_compare({{"rows", many}}, "compare.json");
            }),
            "compare.json: rows: 1001 found, expected at most 1000");
  EXPECT_EQ(input_error([&] {
              parse_compare({{"rows", {row("a")}}, {"rows_planned", 1e300}}, "compare.json");
            }),
            "compare.json: rows_planned: 1e+300 found, expected an integer");
  EXPECT_NE(input_error([&] {
              parse_compare({{"rows", {row("a")}}, {"seeds", {"../x"}}}, "compare.json");
            }).find("seeds: \"../x\" found"),
            std::string::npos);
  EXPECT_NE(input_error([] {
              metrics_of("{\"step\":1,\"quantization\":[{\"layer\":\"a\",\"tensor\":\"b\"}]}\n");
            }).find("tensor: b found, expected input, weight or grad"),
            std::string::npos);
  EXPECT_EQ(input_error([] { metrics_of("{\"step\":18446744073709551615}\n"); }),
            "metrics.jsonl:1: step: 18446744073709551615 found, expected an integer");
  EXPECT_EQ(input_error([] { metrics_of("{}\n" + std::string(kMaxLineBytes + 1, ' ')); }).substr(0, 15),
            "metrics.jsonl:1");
}

TEST(Metrics, LinesOverTheReadersPieces) {
  std::string text;
  for (int step = 1; step <= 3; ++step)
    text += "{\"step\":" + std::to_string(step) + ",\"tokens\":1,\"seconds\":1,\"loss\":1,\"x\":\"" +
            std::string(1'100'000, 'y') + "\"}\n";
  EXPECT_EQ(metrics_of(text).steps.size(), 3u);
  text.pop_back(), text.pop_back();
  const Metrics cut = metrics_of(text);
  EXPECT_EQ(cut.steps.size(), 2u);
  EXPECT_EQ(cut.torn, 1);
}

TEST(ReadAll, SeparateRunsAndUniqueLabels) {
  const TempDir temp;
  testing::write_run(temp.path() / "a", {"fp32", "mxfp8", "linear"}, {.steps = 20});
  testing::write_run(temp.path() / "b", {"bf16", "mxfp8", "linear"}, {.steps = 20}, /*ended=*/false);
  const ReportData data = read_all({temp.path() / "a", temp.path() / "b"});
  ASSERT_EQ(data.runs.size(), 2u);
  EXPECT_EQ(data.runs[0].label, "quickstart");
  EXPECT_EQ(data.runs[1].label, "quickstart (2)");
  EXPECT_TRUE(data.runs[0].row.ended());
  EXPECT_FALSE(data.runs[1].row.ended());
  EXPECT_FALSE(data.compare);
}

TEST(ReadAll, FolderOfNeitherKind) {
  const TempDir temp;
  EXPECT_NE(input_error([&] { read_all({temp.path()}); }).find("neither run.json nor compare.json found"),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::report
