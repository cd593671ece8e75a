#include "report/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/report/synthetic.h"

namespace mantissa::report {
namespace {

CompareRow row(const char* weights, const char* recipe, const char* scope, const char* path, double loss, double delta,
               double speed) {
  CompareRow r{.weights = weights, .recipe = recipe, .scope = scope, .path = path};
  r.loss = loss;
  r.delta_loss = delta;
  r.tokens_per_s = speed;
  return r;
}

ReportData of(std::vector<CompareRow> rows) {
  ReportData data;
  data.compare.emplace();
  data.compare->rows = std::move(rows);
  data.compare->planned = std::ssize(data.compare->rows);
  return data;
}

std::string words(const Verdict& verdict) { return verdict.headline + "\n" + join(verdict.sentences, "\n"); }

TEST(Verdict, EmulatedSpeedIsNeverPicked) {
  const ReportData data = of(
      {row("fp32", "bf16", "none", "native", 2.0, 0, 100), row("fp32", "mxfp8", "linear", "emulated", 1.9, -0.1, 900)});
  const auto front = native_front(*data.compare);
  ASSERT_EQ(front.size(), 1u);
  EXPECT_EQ(front[0].row->recipe, "bf16");
  const std::string text = words(judge(data));
  EXPECT_NE(text.find("For speed, pick bf16 with fp32 weights: 100 tok/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("900 tok/s"), std::string::npos) << text;
  EXPECT_NE(text.find("their speed is the emulation's"), std::string::npos) << text;
}

TEST(Verdict, LowerEmulatedLossesAreNamed) {
  const std::string text = words(judge(
      of({row("fp32", "bf16", "none", "native", 2.0, 0, 100), row("fp32", "mxfp8", "linear", "emulated", 1.9, -0.1, 50),
          row("fp32", "nvfp4", "linear", "emulated", 1.95, -0.05, 50),
          row("fp32", "fp8-delayed", "linear", "emulated", 2.1, 0.1, 50)})));
  EXPECT_NE(text.find("among the native rows, the one with the lowest loss"), std::string::npos) << text;
  EXPECT_NE(text.find("2 emulated rows have a lower loss than every native row: the lowest is mxfp8 (linear) with fp32 "
                      "weights at 1.9000, 0.1000 below."),
            std::string::npos)
      << text;
  const std::string none = words(judge(of(
      {row("fp32", "bf16", "none", "native", 2.0, 0, 100), row("fp32", "mxfp8", "linear", "emulated", 2.1, 0.1, 50)})));
  EXPECT_EQ(none.find("lower loss than every native row"), std::string::npos) << none;
}

TEST(Verdict, NoiseIsThatOfThePairedDelta) {
  ReportData data = of(
      {row("fp32", "bf16", "none", "native", 2.0, 0, 100), row("fp32", "mxfp8", "linear", "native", 2.01, 0.01, 90)});
  for (CompareRow& r : data.compare->rows) r.loss_spread = 0.1;
  data.compare->rows[1].delta_spread = 0.001;
  EXPECT_DOUBLE_EQ(estimate_noise(data).nats, 0.002);
  const std::string text = words(judge(data));
  EXPECT_NE(text.find("mxfp8: Δ loss +0.0100 over 1 row, outside the noise."), std::string::npos) << text;
  EXPECT_NE(text.find("paired Δ over seeds"), std::string::npos) << text;
}

TEST(Verdict, FrontHoldsOnlyRowsWorthTheirLoss) {
  const ReportData data = of({row("fp32", "bf16", "none", "native", 2.00, 0, 100),
                              row("fp32", "fp8-delayed", "linear", "native", 2.01, 0.01, 150),
                              row("fp32", "fp8-blockwise", "linear", "native", 2.02, 0.02, 140),  // slower and worse
                              row("fp32", "mxfp8", "linear", "native", 2.05, 0.05, 151),  // within the tie, worse
                              row("fp32", "nvfp4", "linear", "native", 2.10, 0.10, 200)});
  std::vector<std::string> recipes;
  for (const Pick& pick : native_front(*data.compare)) recipes.push_back(pick.row->recipe);
  EXPECT_EQ(recipes, (std::vector<std::string>{"nvfp4", "fp8-delayed", "bf16"}));
}

TEST(Verdict, DifferencesInsideTheNoiseAreSaidSo) {
  ReportData data = of({row("fp32", "bf16", "none", "native", 2.0, 0, 100),
                        row("fp32", "fp8-delayed", "linear", "native", 2.003, 0.003, 150),
                        row("fp32", "nvfp4", "linear", "native", 2.04, 0.04, 100)});
  for (CompareRow& r : data.compare->rows) r.loss_spread = 0.002;
  const Noise noise = estimate_noise(data);
  EXPECT_TRUE(noise.known);
  EXPECT_DOUBLE_EQ(noise.nats, 0.004);
  const std::string text = words(judge(data));
  EXPECT_NE(text.find("50% faster than bf16 with fp32 weights, at a loss that differs by less than the noise"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("fp8-delayed: Δ loss +0.0030 over 1 row, inside the noise."), std::string::npos) << text;
  EXPECT_NE(text.find("nvfp4: Δ loss +0.0400 over 1 row, outside the noise."), std::string::npos) << text;
}

TEST(Verdict, NoiseFromPairedStepsWithoutSeeds) {
  const testing::TempDir temp;
  testing::write_compare(temp.path(), {.steps = 200});
  const Noise noise = estimate_noise(read_all({temp.path()}));
  EXPECT_TRUE(noise.known);
  // Jitter of 0.002 a step on each side over 20 steps, and a drift of about 0.0025: far below the batches' own 0.035.
  EXPECT_GT(noise.nats, 0.0003);
  EXPECT_LT(noise.nats, 0.006);
}

TEST(Verdict, UnknownNoiseIsSaid) {
  const std::string text = words(judge(of(
      {row("fp32", "bf16", "none", "native", 2.0, 0, 100), row("fp32", "mxfp8", "linear", "native", 2.1, 0.1, 90)})));
  EXPECT_NE(text.find("Noise: not known"), std::string::npos) << text;
}

TEST(Verdict, NothingNativeOffersNoSpeed) {
  const std::string text = words(judge(of({row("fp32", "mxfp8", "linear", "emulated", 2.1, 0.1, 90)})));
  EXPECT_NE(text.find("nothing here says which is faster"), std::string::npos) << text;
}

TEST(Verdict, EqualRowsAreNamed) {
  const std::string text = words(judge(of({row("fp32", "bf16", "none", "native", 2.0, 0, 100),
                                           row("fp32", "mxfp8", "linear+logits", "emulated", 2.1, 0.1, 90),
                                           row("fp32", "mxfp8", "linear+logits+norm", "emulated", 2.1, 0.1, 91)})));
  EXPECT_NE(text.find("rows 2 and 3."), std::string::npos) << text;
}

TEST(Verdict, EqualRowsAreGroupedNotPaired) {
  std::vector<CompareRow> rows(1000, row("fp32", "mxfp8", "linear", "emulated", 2.1, 0.1, 90));
  const std::string text = words(judge(of(std::move(rows))));
  EXPECT_NE(text.find("998, 999 and 1000."), std::string::npos);
  EXPECT_LT(text.size(), size_t{20'000});
}

}  // namespace
}  // namespace mantissa::report
