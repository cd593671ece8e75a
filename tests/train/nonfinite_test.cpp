// Steps whose loss is not finite: named, kept, not applied; left out on wish, the same after a resume.
#include <cfloat>
#include <cmath>

#include "tests/train/small_run.h"
#include "tests/train/snapshot.h"
#include "train/run_train.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::small_run;
using testing::Snapshot;
using testing::snapshot_of;
using testing::TempFolder;

class NonFiniteSteps : public ::testing::Test {
 protected:
  // A GPT-2 whose first weights overflow for one token alone: Q and every position hold a value whose sum is infinite.
  // Its text has one Q among its rows.
  NonFiniteSteps() : config(small_run(folder, "run")) {
    std::string text;
    for (int i = 0; i < 6 * 32; ++i) text += i == 100 ? 'Q' : static_cast<char>('a' + i * 7 % 8);
    write_atomic(folder / "text.txt", text);
    TrainConfig& c = config;
    c.model = {.arch = "gpt2",
               .vocab_size = 256,
               .hidden_size = 64,
               .intermediate_size = 64,
               .num_hidden_layers = 1,
               .num_attention_heads = 2,
               .max_position_embeddings = 32,
               .tie_word_embeddings = false};
    c.data.validation_fraction = 0;
    c.precision.recipe = "fp32";
    c.batch.tokens = 32;
    c.train.steps = 30;
    c.train.on_nonfinite = "skip", c.train.checkpoint_every = "1", c.train.save_weights = false;
    c.resolve();
  }

  // The run from its folder on; without one, from the weights above. Stops behind `stop`.
  RunResult start(int64_t stop = 0) {
    RunFolder run(config.run.dir, RunFolder::Kind::kRun);
    std::optional<ResumePoint> point = ResumePoint::find(config, {});
    const Dataset data = Dataset::load(config.data, 1);
    Trainer trainer(config, data, {1, 1});
    if (point) {
      trainer.go_on([&](Engine& engine) { return point->fill(engine, trainer.setup()); });
    } else {
      trainer.go_on([&](Engine& engine) {
        engine.initialize(3);
        overflow(engine.params());
        return Behind{};
      });
    }
    int64_t step = 0;
    TrainHooks hooks;
    hooks.events = [&](const Event& event) {
      if (const auto* r = std::get_if<StepReport>(&event)) step = r->step, skipped.push_back(r->skipped);
      if (const auto* w = std::get_if<Warning>(&event)) warnings.push_back(w->text);
    };
    hooks.stop = [&] { return step == stop && stop > 0; };
    hooks.after_step = [&](const Progress&, Engine& engine) { states.push_back(snapshot_of(engine)); };
    return trainer.run(run, hooks);
  }

  static void overflow(ParamStore& params) {
    for (int id = 0; id < params.size(); ++id) {
      const bool tokens = params.spec(id).shape == Shape{256, 64}, positions = params.spec(id).shape == Shape{32, 64};
      if (!(tokens && params.spec(id).name.find("head") == std::string::npos) && !positions) continue;
      std::vector<float> values = params.values(id);
      for (int64_t row = tokens ? 'Q' : 0; row <= (tokens ? 'Q' : 31); ++row)
        values[static_cast<size_t>(row * 64 + 5)] = 0.9F * FLT_MAX;
      params.set(id, values.data());
    }
  }

  TempFolder folder;
  TrainConfig config;
  std::vector<bool> skipped;
  std::vector<std::string> warnings;
  std::vector<Snapshot> states;
};

TEST_F(NonFiniteSteps, AreLeftOutAndTheRunGoesOn) {
  const RunResult result = start();
  const auto bad = std::find(skipped.begin(), skipped.end(), true) - skipped.begin();
  ASSERT_GE(std::count(skipped.begin(), skipped.end(), true), 2) << "once an epoch";
  ASSERT_GT(std::count(skipped.begin(), skipped.end(), false), 8);
  EXPECT_EQ(result.skipped, std::count(skipped.begin(), skipped.end(), true));
  EXPECT_TRUE(std::isfinite(result.loss));
  ASSERT_GT(bad, 0) << "another seed puts the row elsewhere";
  for (const auto& [name, tensor] : states[static_cast<size_t>(bad)])
    EXPECT_EQ(tensor.bytes, states[static_cast<size_t>(bad - 1)].at(name).bytes) << name << " was changed";
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(warnings[0].starts_with(fmt::format("step {}: loss is ", bad + 1))) << warnings[0];
  EXPECT_NE(warnings[0].find("is not finite at element"), std::string::npos) << warnings[0];

  const Json record = read_json(join_path(config.run.dir, "nonfinite.json"));
  const Json& ids = record["micro_batches"][0]["ids"];
  EXPECT_NE(std::find(ids.begin(), ids.end(), Json('Q')), ids.end());
  EXPECT_EQ(record["first_row"], record["step"].get<int64_t>() - 1);
  for (const Json& parameter : record["parameters"]) EXPECT_TRUE(parameter["weight"]["first_nonfinite"].is_null());
}

TEST_F(NonFiniteSteps, TheSameAfterAResume) {
  const RunResult straight = start();
  const Snapshot end = states.back();
  config.run.dir = folder / "cut";
  for (int64_t step = 1; step < 30; step += 3) error_of(Exit::kInterrupted, [&] { start(step); });
  const RunResult cut = start();
  EXPECT_EQ(cut.loss, straight.loss);
  EXPECT_EQ(cut.skipped, straight.skipped);
  for (const auto& [name, tensor] : end) EXPECT_EQ(tensor.bytes, states.back().at(name).bytes) << name;
}

TEST_F(NonFiniteSteps, EndTheRunWhereNothingElseIsAsked) {
  config.train.on_nonfinite = "stop";
  const std::string message = error_of(Exit::kNonFinite, [&] { start(); });
  const auto step = static_cast<int64_t>(skipped.size()) + 1;
  EXPECT_TRUE(message.starts_with(fmt::format("step {}: loss is ", step))) << message;
  EXPECT_NE(message.find("nonfinite.json in the run's folder says more"), std::string::npos) << message;
  EXPECT_EQ(read_json(join_path(config.run.dir, "nonfinite.json"))["step"], step);
  const std::vector<int64_t> saved = CheckpointStore(join_path(config.run.dir, "checkpoints")).steps();
  ASSERT_GT(step, 1);
  EXPECT_EQ(saved.back(), step - 1) << "nothing of the bad step is saved";
  // Another wish goes on from there.
  config.train.on_nonfinite = "skip";
  EXPECT_GT(start().skipped, 0);
}

TEST_F(NonFiniteSteps, InARowEndTheRun) {
  std::string text(6 * 32, 'Q');
  write_atomic(folder / "text.txt", text);
  config.train.nonfinite_limit = 3;
  const std::string message = error_of(Exit::kNonFinite, [&] { start(); });
  EXPECT_TRUE(message.starts_with("step 4: ")) << message;
  EXPECT_NE(message.find("the 3 steps before it were left out too (train.nonfinite_limit)"), std::string::npos);
}

TEST_F(NonFiniteSteps, WeightsThatAreNotFiniteAreNoMatterOfABatch) {
  config.optimizer.adamw.lr = 1e38, config.optimizer.adamw.grad_clip = 0;
  const std::string message = error_of(Exit::kNonFinite, [&] { start(); });
  EXPECT_NE(message.find("parameter "), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa
