#include <gtest/gtest.h>

#include "base/error.h"
#include "model/flops.h"
#include "train/schedule.h"

namespace mantissa {
namespace {

TEST(Schedule, CosineWarmsUpAndEndsAtItsFloor) {
  const ScheduleConfig s{.name = "cosine", .warmup_steps = 10, .min_ratio = 0.1};
  EXPECT_DOUBLE_EQ(s.factor(1, 110), 0.1);
  EXPECT_DOUBLE_EQ(s.factor(10, 110), 1);
  EXPECT_NEAR(s.factor(60, 110), 0.55, 1e-12);  // half way: the mean of peak and floor
  EXPECT_NEAR(s.factor(110, 110), 0.1, 1e-12);
}

TEST(Schedule, WsdIsStableThenDecaysOverTheLastShare) {
  const ScheduleConfig s{.name = "wsd", .warmup_steps = 100, .decay_fraction = 555.0 / 2776, .decay = "cosine"};
  EXPECT_DOUBLE_EQ(s.factor(50, 2776), 0.5);
  EXPECT_DOUBLE_EQ(s.factor(2221, 2776), 1);
  EXPECT_LT(s.factor(2222, 2776), 1);
  EXPECT_NEAR(s.factor(2776, 2776), 0, 1e-12);
}

TEST(Schedule, LinearAndConstant) {
  const ScheduleConfig linear{.name = "linear", .warmup_steps = 0, .min_ratio = 0};
  EXPECT_NEAR(linear.factor(25, 100), 0.75, 1e-12);
  const ScheduleConfig constant{.name = "constant", .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(constant.factor(2, 100), 0.5);
  EXPECT_DOUBLE_EQ(constant.factor(100, 100), 1);
}

TEST(Schedule, RefusesAWarmUpLongerThanTheRunWithBothNumbers) {
  const ScheduleConfig s{.name = "cosine", .warmup_steps = 2000};
  try {
    s.validate(1760);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kUsage);
    EXPECT_NE(std::string(e.what()).find("2000"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("1760"), std::string::npos);
  }
}

ModelConfig qwen3(int64_t layers, bool tied) {
  ModelConfig m;
  m.arch = "qwen3";
  m.vocab_size = 151936, m.hidden_size = 2048, m.intermediate_size = 6144;
  m.num_hidden_layers = layers, m.num_attention_heads = 16, m.num_key_value_heads = 8, m.head_dim = 128;
  m.tie_word_embeddings = tied;
  m.resolve();
  return m;
}

// Check values of the reference guide's 1.8 B model and of Qwen3-1.7B.
TEST(Flops, CheckValues) {
  const ModelConfig a = qwen3(24, false);
  EXPECT_NEAR(static_cast<double>(count_parameters(a)) / 1e9, 1.8304, 5e-5);
  FlopsPerToken f = flops_per_token(a, 2048, 2048, Recompute::kNone);
  EXPECT_NEAR(f.nanogpt_legacy_v1 / 1e9, 12.190, 5e-4);
  EXPECT_NEAR(f.combined_formula_v2 / 1e9, 10.323, 5e-4);
  EXPECT_NEAR(f.component_summation_v2025 / 1e9, 10.323, 5e-4);
  EXPECT_NEAR(f.mfu / 1e9, 9.719, 5e-4);
  EXPECT_NEAR(f.attention_to_ffn_ratio, 0.556, 5e-4);

  const ModelConfig b = qwen3(28, true);
  EXPECT_NEAR(static_cast<double>(count_parameters(b)) / 1e9, 1.7206, 5e-5);
  f = flops_per_token(b, 4096, 4096, Recompute::kNone);
  EXPECT_NEAR(f.nanogpt_legacy_v1 / 1e9, 13.142, 5e-4);
  EXPECT_NEAR(f.component_summation_v2025 / 1e9, 13.141, 5e-4);
  EXPECT_NEAR(f.mfu / 1e9, 11.732, 5e-4);
}

}  // namespace
}  // namespace mantissa
