// bench_steps() on the CPU, and the sums of a profile's ops.
#include "train/step_bench.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa {
namespace {

TEST(SummarizeOps, TellsTheHeadsProductsFromTheLayers) {
  const char* names[] = {"embedding_fwd", "rms_norm_fwd", "gemm fprop",    "attention_fwd", "add",
                         "rms_norm_fwd",  "gemm fprop",   "cross_entropy", "gemm dgrad",    "gemm wgrad",
                         "rms_norm_bwd",  "gemm dgrad",   "gemm wgrad",    "attention_bwd", "qk_norm_rope_bwd",
                         "embedding_bwd", "adamw_update", "something"};
  std::vector<OpTime> ops;
  double at = 10;
  for (const char* name : names) {
    ops.push_back({name, at, at + 5});
    at += 7;  // 2 us between ops
  }
  const StepProfile p = summarize_ops(ops);
  const auto part = [&p](const std::string& name) {
    for (const StepPart& each : p.parts)
      if (each.name == name) return each;
    return StepPart{};
  };
  EXPECT_EQ(part("logits").calls, 3);
  EXPECT_DOUBLE_EQ(part("logits").us, 15);
  for (const char* pass : {"fprop", "dgrad", "wgrad"}) EXPECT_EQ(part(pass).calls, 1) << pass;
  EXPECT_EQ(part("norm and residual").calls, 3);
  EXPECT_EQ(part("QK-norm and RoPE").calls, 1);
  EXPECT_EQ(part("attention forward").calls, 1);
  EXPECT_EQ(part("attention backward").calls, 1);
  EXPECT_EQ(part("embedding").calls, 2);
  EXPECT_EQ(part("optimizer").calls, 1);
  EXPECT_EQ(part("something").calls, 1);
  EXPECT_DOUBLE_EQ(p.ops_us, 5.0 * static_cast<double>(std::size(names)));
  EXPECT_DOUBLE_EQ(p.step_us, 7.0 * static_cast<double>(std::size(names)) - 2);
  EXPECT_TRUE(summarize_ops({}).parts.empty());
}

// Under a quantized head its gradient is cast between the loss and the products that read it; the layers' casts lie
// elsewhere.
TEST(SummarizeOps, TellsThemUnderAQuantizedHead) {
  const char* names[] = {"quantize",      "gemm fprop",   "rms_norm_fwd",  "quantize",   "gemm fprop",
                         "cross_entropy", "quantize",     "gemm fprop",    "gemm fprop", "rms_norm_fwd",
                         "quantize",      "gemm fprop",   "cross_entropy", "quantize",   "gemm fprop",
                         "gemm fprop",    "rms_norm_bwd", "quantize",      "gemm fprop", "gemm fprop"};
  std::vector<OpTime> ops;
  for (size_t i = 0; i < std::size(names); ++i)
    ops.push_back({names[i], static_cast<double>(i), static_cast<double>(i) + 1});
  for (const StepPart& part : summarize_ops(ops).parts) {
    const int64_t calls = part.name == "logits" || part.name == "quantize" ? 6 : part.name == "fprop" ? 3 : part.calls;
    EXPECT_EQ(part.calls, calls) << part.name;
  }
}

TEST(BenchSteps, FailsWhereTheFirstLossIsNotThatOfUntrainedWeights) {
  TrainConfig c;
  c.model.hidden_size = 64, c.model.intermediate_size = 64, c.model.num_hidden_layers = 1;
  c.model.num_attention_heads = 2, c.model.num_key_value_heads = 1, c.model.head_dim = 32, c.model.vocab_size = 128;
  c.data.sequence_length = 32;
  c.batch.tokens = 64;
  c.train.steps = 1;
  c.resolve();
  const StepBench bench = bench_steps(c, nullptr, nullptr, {.seconds = 0.01});
  EXPECT_NEAR(bench.first_loss, std::log(128.0), 0.1 * std::log(128.0));
  EXPECT_GE(bench.steps_s.size(), 3u);
  EXPECT_TRUE(std::is_sorted(bench.steps_s.begin(), bench.steps_s.end()));
  EXPECT_TRUE(bench.profile.parts.empty());
  EXPECT_EQ(bench.segment_length, 32);
  c.model.initializer_range = 2;  // logits that are far from uniform
  EXPECT_THROW(bench_steps(c, nullptr, nullptr, {.seconds = 0.01}), Error);
}

}  // namespace
}  // namespace mantissa
