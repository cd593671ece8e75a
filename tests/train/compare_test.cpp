// Comparisons below the command line: rows, interruption inside a row, the memory plan.
#include "train/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/train/small_run.h"
#include "train/compare_pace.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::small_run;
using testing::TempFolder;

Json rows_of(const TrainConfig& c) { return read_json(join_path(c.run.dir, "compare.json"))["rows"]; }

// Everything of the rows but speeds and times.
Json bits_of(const TrainConfig& c) {
  Json rows = rows_of(c);
  for (Json& row : rows)
    for (const char* key :
         {"seconds", "tokens_per_s", "mfu", "nanogpt_legacy_v1", "combined_formula_v2", "component_summation_v2025"})
      row.erase(key);
  return rows;
}

TEST(Compare, GoesOnWithTheFirstRowThatHasNotEnded) {
  const TempFolder folder;
  const TrainConfig whole = small_run(folder, "whole"), cut = small_run(folder, "cut");
  EXPECT_TRUE(run_compare(whole, false, {}));

  // Stopped inside the third row, then inside the fourth.
  for (const auto& [stop_row, stop_step] : {std::pair<size_t, int64_t>{2, 2}, {3, 1}}) {
    size_t current = 0, trained = 0;
    int64_t step = 0;
    CompareHooks hooks;
    hooks.row_begins = [&](size_t index, size_t, const CompareRowSpec&, bool done) {
      current = index, trained += done ? 0 : 1;
    };
    hooks.train.events = [&](const Event& event) {
      if (const auto* r = std::get_if<StepReport>(&event)) step = r->step;
    };
    hooks.train.stop = [&] { return current == stop_row && step == stop_step; };
    const std::string message = error_of(Exit::kInterrupted, [&] { run_compare(cut, false, hooks); });
    EXPECT_NE(message.find("stopped after step"), std::string::npos) << message;
    EXPECT_EQ(rows_of(cut).size(), stop_row);
    EXPECT_EQ(trained, stop_row == 2 ? 3u : 2u) << "ended rows were trained again";
  }
  EXPECT_TRUE(run_compare(cut, false, {}));
  EXPECT_EQ(bits_of(cut), bits_of(whole));
  EXPECT_EQ(bits_of(whole).size(), 4u);

  EXPECT_FALSE(run_compare(cut, false, {})) << "every row was there";
  EXPECT_TRUE(run_compare(cut, true, {}));
  EXPECT_EQ(bits_of(cut), bits_of(whole)) << "--restart gives the same bits";
}

// Inside the row that had not ended, with the second repeat of two; checkpoints are there for that alone.
TEST(Compare, GoesOnInsideARow) {
  const TempFolder folder;
  TrainConfig whole = small_run(folder, "whole");
  whole.compare.seeds = 2, whole.precision.recipes = {}, whole.compare.weights = {"fp32", "bf16"};
  TrainConfig cut = whole;
  cut.run.dir = folder / "cut";
  EXPECT_TRUE(run_compare(whole, false, {}));
  const auto checkpoints = [&cut](const std::string& row) {
    return join_path(cut.run.dir, "rows/" + row + "/checkpoints");
  };
  size_t begun = 0, row = 0;
  int64_t step = 0;
  std::vector<int64_t> resumed;
  const auto stopped_in_the_second = [&](bool restart) {
    CompareHooks hooks;
    begun = 0, step = 0;
    hooks.row_begins = [&](size_t index, size_t, const CompareRowSpec&, bool) { row = index; };
    hooks.started = [&](Trainer&, const Dataset&, const MachineRates&) { begun += row == 1; };
    hooks.train.events = [&](const Event& event) {
      if (const auto* r = std::get_if<StepReport>(&event)) step = r->step;
      if (const auto* r = std::get_if<Resumed>(&event)) resumed.push_back(r->step);
    };
    hooks.train.stop = [&] { return begun == 2 && step == 2; };
    error_of(Exit::kInterrupted, [&] { run_compare(cut, restart, hooks); });
  };
  stopped_in_the_second(false);
  EXPECT_FALSE(exists(checkpoints("01-fp32-bf16"))) << "the row has ended";
  EXPECT_TRUE(exists(checkpoints("02-bf16-bf16")));
  EXPECT_TRUE(exists(checkpoints("02-bf16-bf16-seed43") + "/step_2"));
  EXPECT_TRUE(resumed.empty());

  std::vector<int64_t> steps;
  CompareHooks hooks;
  hooks.train.events = [&](const Event& event) {
    if (const auto* r = std::get_if<StepReport>(&event)) steps.push_back(r->step);
  };
  EXPECT_TRUE(run_compare(cut, false, hooks));
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 4})) << "the repeat before it had been trained";
  EXPECT_EQ(bits_of(cut), bits_of(whole));
  for (const char* name : {"02-bf16-bf16", "02-bf16-bf16-seed43"}) EXPECT_FALSE(exists(checkpoints(name))) << name;

  stopped_in_the_second(true);
  stopped_in_the_second(true);
  EXPECT_TRUE(resumed.empty()) << "--restart begins with step 1";
}

TEST(Compare, StoppedInTheFirstRow) {
  const TempFolder folder;
  const TrainConfig c = small_run(folder, "c");
  CompareHooks hooks;
  hooks.train.stop = [] { return true; };
  error_of(Exit::kInterrupted, [&] { run_compare(c, false, hooks); });
  EXPECT_FALSE(exists(join_path(c.run.dir, "compare.json")));
  EXPECT_TRUE(run_compare(c, false, {}));
  EXPECT_EQ(rows_of(c).size(), 4u);
}

// A restart removes what a comparison wrote and nothing else.
TEST(Compare, RestartKeepsOtherFiles) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  c.train.steps = 1;
  make_dirs(c.run.dir);
  write_atomic(join_path(c.run.dir, "notes.txt"), "mine");
  EXPECT_TRUE(run_compare(c, false, {}));
  EXPECT_TRUE(run_compare(c, true, {}));
  EXPECT_EQ(read_text(join_path(c.run.dir, "notes.txt")), "mine");
}

// Every row is checked before the first one trains.
TEST(Compare, ARowThatCannotRunStopsBeforeTheFirst) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  c.precision.recipes = {"mxfp8", "fp32"};
  c.compare.weights = {"fp32", "bf16"};
  size_t begun = 0;
  CompareHooks hooks;
  hooks.row_begins = [&](size_t, size_t, const CompareRowSpec&, bool) { ++begun; };
  const std::string message = error_of(Exit::kUsage, [&] { run_compare(c, false, hooks); });
  EXPECT_NE(message.find("bf16-fp32-linear"), std::string::npos) << message;
  EXPECT_EQ(begun, 0u);
  EXPECT_FALSE(exists(c.run.dir));
}

TEST(Compare, ScopesAreThoseOfTheConfig) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  c.compare.scopes = {"linear+logits"};
  std::vector<std::string> names;
  for (const CompareRowSpec& row : compare_rows(c)) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string>{"fp32-bf16", "fp32-mxfp8-linear+logits"}));
  c.compare.scopes = {"logits"};
  EXPECT_NE(error_of(Exit::kUsage, [&] { c.resolve(); }).find("compare.scopes: logits: expected linear, linear+"),
            std::string::npos);
  c.compare.scopes = {"linear", "linear"};
  EXPECT_NE(error_of(Exit::kUsage, [&] { c.resolve(); }).find("compare.scopes: linear is listed twice"),
            std::string::npos);
}

TEST(ComparePace, RowsThatEndedScaleWhatWasForetold) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  const Dataset data = Dataset::load(c.data, 1, {});
  const std::vector<CompareRowSpec> rows = compare_rows(c);
  const auto foretold = [&](const TrainConfig& config, size_t first) {
    ComparePace pace;
    pace.measure(config, rows, first, data, {});
    return pace;
  };
  EXPECT_FALSE(foretold(c, 0).left(0, rows.size())) << "rows of 4 steps are not timed";
  c.train.steps = ComparePace::kLeastSteps;
  ComparePace pace = foretold(c, 1);
  const double three = pace.left(1, 4).value(), two = pace.left(2, 4).value(), none = pace.left(4, 4).value();
  EXPECT_GT(two, 0);
  EXPECT_GT(three, two);
  EXPECT_EQ(none, 0);
  pace.ended(1, 10 * (three - two));
  EXPECT_NEAR(pace.left(2, 4).value(), 10 * two, 1e-9 * two) << "ten times as slow as foretold";
  ComparePace stopped;
  stopped.measure(c, rows, 0, data, [] { return true; });
  EXPECT_FALSE(stopped.left(0, 4));
}

// Without steps timed in advance the rows that have ended are all there is.
TEST(ComparePace, RowsThatEndedSpeakForTheRest) {
  ComparePace pace;
  EXPECT_FALSE(pace.left(0, 20));
  pace.ended(0, 2);
  pace.ended(1, 4);
  EXPECT_EQ(pace.left(2, 20), 54);
}

// A device of which a run may take `bytes`.
int64_t device_for(int64_t bytes) { return static_cast<int64_t>(static_cast<double>(bytes) / kPlannedShare) + 1; }

TEST(MemoryPlan, HalvesTheMicroBatchUntilItFits) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  c.batch.tokens = 64 * 32;
  const int64_t whole = plan_memory(c, int64_t{1} << 40).ledger.total();
  EXPECT_EQ(plan_memory(c, device_for(whole)).micro_rows, 64);
  const MemoryPlan half = plan_memory(c, device_for(whole - 16));
  EXPECT_EQ(half.micro_rows, 32);
  EXPECT_EQ(half.accumulation, 2);
  // The copy for checkpoints takes what is left, and costs no rows.
  EXPECT_GT(half.checkpoint_bytes, 0);
  EXPECT_FALSE(plan_memory(c, device_for(whole)).copies);
  EXPECT_TRUE(plan_memory(c, device_for(whole + half.checkpoint_bytes)).copies);
  EXPECT_LT(half.ledger.total(), whole);
}

// Each way that a refusal names does fit.
TEST(MemoryPlan, RefusalNamesTwoWays) {
  const TempFolder folder;
  TrainConfig c = small_run(folder, "c");
  c.model.num_hidden_layers = 4;
  c.batch.tokens = 256 * 32;
  c.batch.micro_batch = "256";
  const int64_t needed = plan_memory(c, int64_t{1} << 40).ledger.total();
  const std::string message = error_of(Exit::kMemory, [&] { plan_memory(c, device_for(needed - 16)); });
  EXPECT_NE(message.find("batch.micro_batch 256 -> 128 fits"), std::string::npos) << message;
  EXPECT_NE(message.find("train.recompute: block fits"), std::string::npos) << message;
  TrainConfig fewer = c, block = c;
  fewer.batch.micro_batch = "128";
  block.train.recompute = "block";
  EXPECT_NO_THROW(plan_memory(fewer, device_for(needed - 16)));
  EXPECT_NO_THROW(plan_memory(block, device_for(needed - 16)));
  const std::string hopeless = error_of(Exit::kMemory, [&] { plan_memory(c, 1 << 20); });
  EXPECT_NE(hopeless.find(", or "), std::string::npos) << hopeless;
}

}  // namespace
}  // namespace mantissa
