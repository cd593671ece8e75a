// Steps of a small model as `bench step` runs them on a GPU, and what becomes of a profile.
#include <cmath>

#include "tests/gpu/on_device.h"
#include "train/step_bench.h"

namespace mantissa {
namespace {

TrainConfig small_config() {
  TrainConfig c;
  c.model.hidden_size = 128, c.model.intermediate_size = 256, c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 2, c.model.num_key_value_heads = 1, c.model.head_dim = 64;
  c.model.vocab_size = 512;
  c.data.sequence_length = 128;
  c.batch.tokens = 1024, c.batch.micro_batch = "4";
  c.precision.weights = "bf16", c.precision.recipe = "bf16";
  c.train.steps = 1;
  c.resolve();
  return c;
}

using GpuBench = GpuTest;

TEST_F(GpuBench, TimesStepsAndProfilesThem) {
  const TrainConfig config = small_config();
  const StepBench bench = bench_steps(config, nullptr, &device(), {.seconds = 0.5});
  EXPECT_EQ(bench.plan.accumulation, 2);
  EXPECT_GE(bench.steps_s.size(), 3u);
  EXPECT_NEAR(bench.first_loss, std::log(512.0), 0.1 * std::log(512.0));
  EXPECT_GT(bench.grad_norm, 0);
  EXPECT_GT(bench.measured_bytes, 0);
  EXPECT_GT(bench.state.samples + (bench.state.absence.empty() ? 0 : 1), 0);
  // Two micro-batches of two layers: four products a layer in three passes; the head's are apart.
  int64_t products = 0, logits = 0, optimizer = 0, attention = 0;
  for (const StepPart& part : bench.profile.parts) {
    EXPECT_GT(part.us, 0) << part.name;
    if (part.name == "fprop" || part.name == "dgrad" || part.name == "wgrad" || part.name == "gemm")
      products += part.calls;
    if (part.name == "logits") logits += part.calls;
    if (part.name == "optimizer") optimizer += part.calls;
    if (part.name.starts_with("attention")) attention += part.calls;
  }
  EXPECT_EQ(products, 2 * 2 * 4 * 3);
  EXPECT_EQ(logits, 2 * 3);
  EXPECT_EQ(optimizer, 1);
  EXPECT_EQ(attention, 2 * 2 * 2);
  EXPECT_LE(bench.profile.ops_us, bench.profile.step_us * 1.001);
}

}  // namespace
}  // namespace mantissa
