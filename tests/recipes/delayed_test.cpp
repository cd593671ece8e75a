// Delayed scaling: the update rule of TransformerEngine's fused path and when a layer's state moves.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "ops/delayed_scaling.h"
#include "tests/recipes/linear_run.h"

namespace mantissa::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Rule {
  int64_t history_len = 1024;
  bool most_recent = false;
};

// An update of a slot with this scale; the scale after it.
float update(float scale, float* history, int64_t stride, const Rule& rule) {
  Exec exec;
  float next = -1;
  uint32_t fault = 0;
  DelayedSlot slot{.scale = &scale,
                   .next = &next,
                   .history = history,
                   .length = rule.history_len,
                   .stride = stride,
                   .most_recent = rule.most_recent};
  const float before = scale;
  update_scales(exec, {&slot, 1, &fault}, 0, 1);
  EXPECT_EQ(scale, before) << "casts read a scale before it is published";
  publish_scales(exec, {&slot, 1, &fault});
  return scale;
}

// One slot: scales after each amax of a stream.
struct Slot {
  Rule rule;
  std::vector<float> history = std::vector<float>(static_cast<size_t>(rule.history_len));
  float scale = 1;

  float step(float amax) {
    history[0] = amax;
    return scale = update(scale, history.data(), 1, rule);
  }
};

TEST(DelayedScale, GoldenStream) {
  Slot slot{.rule = {.history_len = 4}};
  const float stream[] = {2, 8, 1, 1, 1, 1, kInf, 1, 1, 1, 1};
  const float scales[] = {224, 56, 56, 56, 56, 448, 448, 448, 448, 448, 448};
  for (size_t i = 0; i < std::size(stream); ++i) EXPECT_EQ(slot.step(stream[i]), scales[i]) << "update " << i;
}

TEST(DelayedScale, InfFreezesForTheLengthOfTheHistory) {
  Slot slot{.rule = {.history_len = 4}};
  slot.step(1);
  slot.step(kInf);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(slot.step(4), 448) << i;
  EXPECT_EQ(slot.step(4), 112);  // the Inf has left the window

  Slot recent{.rule = {.history_len = 4, .most_recent = true}};
  recent.step(1);
  EXPECT_EQ(recent.step(kInf), 448);
  EXPECT_EQ(recent.step(4), 112);
}

TEST(DelayedScale, ZeroNeitherRollsNorMoves) {
  Slot slot{.rule = {.history_len = 3}};
  slot.step(2);
  slot.step(4);
  const std::vector<float> before = slot.history;
  EXPECT_EQ(slot.step(0), 112);
  EXPECT_EQ(slot.history, before);
}

TEST(DelayedScale, NanIsLeftOutByMaxAndKeepsTheScaleOtherwise) {
  Slot slot{.rule = {.history_len = 4}};
  slot.step(2);
  EXPECT_EQ(slot.step(kNan), 224);
  EXPECT_TRUE(std::isnan(slot.history[3]));
  EXPECT_EQ(slot.step(1), 224);  // 2 still in the window

  Slot first{.rule = {.history_len = 4}};
  EXPECT_EQ(first.step(kNan), 1);
  Slot recent{.rule = {.history_len = 4, .most_recent = true}};
  recent.step(2);
  EXPECT_EQ(recent.step(kNan), 224);
}

TEST(DelayedScale, RollsRowOneOut) {
  Slot slot{.rule = {.history_len = 4}};
  for (const float amax : {1.0f, 2.0f, 3.0f, 4.0f}) slot.step(amax);
  EXPECT_EQ(slot.history, (std::vector<float>{0, 2, 3, 4}));
}

TEST(DelayedScale, HistoryOfOneIsTheCurrentAmax) {
  for (const bool most_recent : {false, true}) {
    Slot slot{.rule = {.history_len = 1, .most_recent = most_recent}};
    EXPECT_EQ(slot.step(2), 224);
    EXPECT_EQ(slot.step(8), 56);
    EXPECT_EQ(slot.step(1), 448);
    EXPECT_EQ(slot.history[0], 0);
  }
}

TEST(DelayedScale, TinyAmaxTakesTheLargestFloat) {
  Slot slot{.rule = {.history_len = 4}};
  EXPECT_EQ(slot.step(1e-38f), FLT_MAX);
}

TEST(DelayedScale, ReadsAColumnOfTheHistory) {
  float history[] = {3, 100, 0, 100, 7, 100};  // [3, 2]
  EXPECT_EQ(update(1, history, 2, {.history_len = 3}), 64);
  EXPECT_EQ(history[0], 0);
  EXPECT_EQ(history[2], 7);
  EXPECT_EQ(history[4], 3);
  for (const int i : {1, 3, 5}) EXPECT_EQ(history[i], 100);
}

class DelayedLayer : public testing::Test {
 protected:
  static RecipeOptions options() { return {.amax_history_len = 4}; }

  LinearRun run{find_recipe("fp8-delayed"), options(), {32, 32, 64}, DType::kF32};

  float& scale_fwd(int slot) { return run.state()[0].second.as<float>()[slot]; }
  float& history_fwd(int row, int slot) { return run.state()[1].second.as<float>()[row * 2 + slot]; }
  float& scale_bwd() { return run.state()[2].second.as<float>()[0]; }
  float& history_bwd(int row) { return run.state()[3].second.as<float>()[row]; }

  // Tensors whose amax is the number given.
  void fill(float x, float w, float dy) {
    store(run.x.high, std::vector<float>(static_cast<size_t>(run.x.high.count()), x));
    store(run.w, std::vector<float>(static_cast<size_t>(run.w.count()), w));
    store(run.dy.high, std::vector<float>(static_cast<size_t>(run.dy.high.count()), dy));
  }
};

TEST_F(DelayedLayer, StateMovesOncePerMicroBatchAndTheWeightOnceAStep) {
  EXPECT_EQ(scale_fwd(0), 1);
  EXPECT_EQ(scale_fwd(1), 1);
  EXPECT_EQ(scale_bwd(), 1);
  fill(2, 4, 7);
  run.recipe->refresh_weight(run.exec, run.w);
  run.forward();
  EXPECT_EQ(history_fwd(0, 0), 2);
  EXPECT_EQ(history_fwd(0, 1), 4);
  EXPECT_EQ(run.end_forward(), "");
  EXPECT_EQ(history_fwd(0, 0), 0);
  EXPECT_EQ(history_fwd(3, 0), 2);
  EXPECT_EQ(*run.x.rowwise.scale, 1) << "casts before end_backward() read the forward's scale";
  run.backward();
  EXPECT_EQ(history_bwd(0), 7);
  EXPECT_EQ(run.end_backward(), "");
  EXPECT_EQ(*run.x.rowwise.scale, 224);
  EXPECT_EQ(scale_fwd(1), 112);
  EXPECT_EQ(*run.dy.rowwise.scale, 8192);

  // The second micro-batch reuses the weight's copy: its slot stays.
  fill(4, 1, 14);
  run.forward();
  run.end_forward();
  run.backward();
  run.end_backward();
  EXPECT_EQ(scale_fwd(0), 112);
  EXPECT_EQ(scale_fwd(1), 112);
  EXPECT_EQ(history_fwd(3, 1), 4);
  EXPECT_EQ(history_fwd(2, 1), 0);
  EXPECT_EQ(scale_bwd(), 4096);
}

TEST_F(DelayedLayer, BackwardLeftOut) {
  fill(2, 4, 7);
  run.recipe->refresh_weight(run.exec, run.w);
  run.forward();
  run.end_forward();
  run.end_backward();
  EXPECT_EQ(scale_fwd(0), 224);
  EXPECT_EQ(scale_bwd(), 1);
}

TEST_F(DelayedLayer, NonFiniteAmaxIsNamedAndKeepsTheScale) {
  fill(2, 4, 7);
  run.x.high.as<bf16>()[5] = to_bf16(kInf);
  run.dy.high.as<bf16>()[5] = to_bf16(-kInf);
  run.recipe->refresh_weight(run.exec, run.w);
  run.forward();
  EXPECT_EQ(run.end_forward(), "layers.0.mlp.down_proj input: amax is inf, scale 1 -> 1");
  run.backward();
  EXPECT_EQ(run.end_backward(), "layers.0.mlp.down_proj grad: amax is inf, scale 1 -> 1");
  EXPECT_EQ(scale_fwd(0), 1);
  EXPECT_EQ(scale_fwd(1), 112);
}

TEST_F(DelayedLayer, MarginLowersScales) {
  LinearRun margin(find_recipe("fp8-delayed"), {.margin = 3, .amax_history_len = 4}, {32, 32, 64}, DType::kF32);
  store(margin.x.high, std::vector<float>(32 * 64, 2.0f));
  store(margin.w, std::vector<float>(32 * 64, 2.0f));
  margin.recipe->refresh_weight(margin.exec, margin.w);
  margin.forward();
  margin.end_forward();
  margin.end_backward();
  EXPECT_EQ(*margin.x.rowwise.scale, 28);
}

}  // namespace
}  // namespace mantissa::test
