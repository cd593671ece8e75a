// What a run tells, in which order, and what its log keeps of it.
#include "train/events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/train/small_run.h"
#include "train/compare.h"
#include "train/run_train.h"
#include "train/sinks/run_log.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::small_run;
using testing::TempFolder;

const char* name_of(const Event& event) {
  static const char* names[] = {"loaded",     "began",  "info",    "ready",  "first",   "step",  "errors",
                                "evaluation", "sample", "warning", "result", "resumed", "saved", "nonfinite"};
  static_assert(std::variant_size_v<Event> == std::size(names));
  return names[event.index()];
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const std::string text = read_text(path);
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  return lines;
}

TEST(Events, ARunTellsEachFactOnceInItsOrder) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "run");
  c.train.steps = 2, c.train.eval_every = 1, c.train.eval_rows = 1, c.train.sample_every = 2;
  c.precision.recipe = "mxfp8";
  c.log.quantization_every = 2;
  c.resolve();
  std::vector<std::string> names;
  std::vector<Event> events;
  RunHooks hooks;
  hooks.train.events = [&](const Event& event) { names.emplace_back(name_of(event)), events.push_back(event); };
  const std::optional<RunResult> result = run_train(c, {}, hooks);
  ASSERT_TRUE(result.has_value());
  const std::vector<std::string> wanted = {"began", "info",   "ready",      "first",  "step",  "errors", "evaluation",
                                           "step",  "errors", "evaluation", "sample", "saved", "result"};
  EXPECT_EQ(names, wanted);

  const auto file = [&](const char* name) { return join_path(c.run.dir, name); };
  std::vector<std::string> metrics = lines_of(file("metrics.jsonl")), samples = lines_of(file("samples.jsonl"));
  ASSERT_EQ(metrics.size(), 6u);
  ASSERT_EQ(samples.size(), 1u);
  size_t at = 0;
  for (const Event& event : events)
    std::visit(
        On{[&](const RunBegan& e) { EXPECT_EQ(e.config, read_text(file("config.yaml"))); },
           [&](const RunInfo& e) { EXPECT_EQ(*e.json, read_json(file("run.json"))); },
           [&](const StepReport& e) {
             const Json line = parse_json(metrics[at++], "metrics");
             EXPECT_EQ(line["step"], e.step);
             EXPECT_EQ(line["loss"], e.loss);
             EXPECT_EQ(line["lr"], e.lr);
           },
           [&](const QuantizationReport& e) {
             const Json line = parse_json(metrics[at++], "metrics");
             EXPECT_EQ(line["quantization"].size(), e.errors.size());
             EXPECT_GT(e.errors.size(), 0u);
           },
           [&](const EvalReport& e) { EXPECT_EQ(parse_json(metrics[at++], "metrics")["eval_loss"], e.loss); },
           [&](const SampleReport& e) { EXPECT_EQ(parse_json(samples[0], "samples")["text"], e.text); },
           [&](const RunResult& e) { EXPECT_EQ(to_json(e), read_json(file("result.json"))); }, [](const auto&) {}},
        event);
  EXPECT_EQ(at, metrics.size());
}

// A sink that fails ends the run: nothing goes on half recorded.
TEST(Events, WhatASinkThrowsEndsTheRun) {
  const TempFolder folder;
  const TrainConfig c = small_run(folder, "run");
  RunHooks hooks;
  hooks.train.events = [](const Event& event) {
    if (std::holds_alternative<StepReport>(event)) fail(Exit::kStorage, "no room");
  };
  EXPECT_EQ(error_of(Exit::kStorage, [&] { run_train(c, {}, hooks); }), "no room");
  EXPECT_EQ(lines_of(join_path(c.run.dir, "metrics.jsonl")).size(), 1u);
  EXPECT_FALSE(exists(join_path(c.run.dir, "result.json")));
}

TEST(RunTrain, AFinishedRunIsLeftAsItIs) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "run");
  const std::optional<RunResult> result = run_train(c, {}, {});
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(finished_loss(c.run.dir), result->loss);
  const std::string metrics = read_text(join_path(c.run.dir, "metrics.jsonl"));
  int asked = 0;
  RunHooks hooks;
  hooks.device = [&]() -> Device* { return ++asked, nullptr; };
  EXPECT_FALSE(run_train(c, {}, hooks).has_value());
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(read_text(join_path(c.run.dir, "metrics.jsonl")), metrics);

  const std::optional<RunResult> again = run_train(c, {.restart = true}, hooks);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(again->loss, result->loss) << "the same bits";

  c.optimizer.adamw.lr *= 2;
  const std::string message = error_of(Exit::kUsage, [&] { run_train(c, {}, {}); });
  EXPECT_NE(message.find("holds a finished run"), std::string::npos) << message;
}

TEST(RunTrain, AComparisonsFolderIsRefused) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "both");
  c.train.steps = 1;
  run_compare(c, false, {});
  const std::string message = error_of(Exit::kUsage, [&] { run_train(c, {.restart = true}, {}); });
  EXPECT_NE(message.find("holds a comparison; give another run.dir"), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa
