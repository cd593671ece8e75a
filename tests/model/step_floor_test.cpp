// The floor against the published one of one H200: five models, GEMMs, logits, attention and the whole.
#include "model/step_floor.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

struct Row {
  const char* name;
  ModelConfig model;
  double segment_length;
  int64_t tokens_per_step;
  double gemm_us, logits_us, attention_us, tokens_per_s;
};

ModelConfig sizes(const char* arch, int64_t h, int64_t f, int64_t layers, int64_t heads, int64_t kv, int64_t d,
                  int64_t v, bool tied) {
  ModelConfig m;
  m.arch = arch;
  m.hidden_size = h, m.intermediate_size = f, m.num_hidden_layers = layers;
  m.num_attention_heads = heads, m.num_key_value_heads = kv, m.head_dim = d;
  m.vocab_size = v, m.tie_word_embeddings = tied, m.max_position_embeddings = 8192;
  m.resolve();
  return m;
}

std::vector<Row> rows() {
  const ModelConfig qwen3 = sizes("qwen3", 2048, 6144, 28, 16, 8, 128, 151936, true);
  return {
      {"Qwen3-1.7B", qwen3, 4096, 65536, 11.5, 2.75, 3.4, 51700},
      {"Qwen3-1.7B packed", qwen3, 1357, 65536, 11.5, 2.75, 1.5, 57300},
      {"Qwen2.5-1.5B", sizes("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, true), 1024, 65536, 12.0, 2.06, 1.2, 57700},
      {"Llama-3-8B", sizes("llama", 4096, 14336, 32, 32, 8, 128, 128256, false), 8192, 65536, 60.4, 4.6, 15.0, 11850},
      {"GPT-2", sizes("gpt2", 768, 3072, 12, 12, 12, 64, 50257, true), 1024, 524288, 0.84, 0.32, 0.35, 560000},
  };
}

constexpr double kPart = 0.03;   // the published parts have two or three digits
constexpr double kWhole = 0.03;  // everything else is counted by another list there

TEST(StepFloor, AgreesWithThePublishedOne) {
  for (const Row& row : rows()) {
    const StepWork work{.model = row.model,
                        .segment_length = row.segment_length,
                        .tokens_per_step = row.tokens_per_step,
                        .store = {.weights = WeightMode::kBF16, .grads = DType::kBF16, .state = DType::kBF16}};
    const StepFloor floor = step_floor(work, {});
    EXPECT_NEAR(floor.gemm_us, row.gemm_us, kPart * row.gemm_us) << row.name;
    EXPECT_NEAR(floor.logits_us, row.logits_us, kPart * row.logits_us) << row.name;
    EXPECT_NEAR(floor.attention_us, row.attention_us, kPart * row.attention_us) << row.name;
    EXPECT_NEAR(floor.tokens_per_s(), row.tokens_per_s, kWhole * row.tokens_per_s) << row.name;
  }
}

TEST(StepFloor, ScalesWithTheYardstick) {
  const Row row = rows().front();
  StepWork work{.model = row.model, .segment_length = 4096, .tokens_per_step = 65536, .store = {}};
  const StepFloor h200 = step_floor(work, {});
  const StepFloor half = step_floor(work, {.scale = 0.5, .bytes_per_s = 2.14e12});
  EXPECT_NEAR(half.us_per_token(), 2 * h200.us_per_token(), 1e-9 * h200.us_per_token());
  const StepFloor flat = step_floor(work, {.flat_tflops = 1});
  const double flops = 84 * 2.0 * (4096 * 2048 + 2048 * 2048 + 12288 * 2048 + 2048 * 6144);
  EXPECT_NEAR(flat.gemm_us, flops / 1e6, 1e-6 * flops / 1e6);
  // FP32 weights, gradients and moments: 2 x 4 + 2 + 2 x 4 + 4 x 4 bytes a parameter against 16.
  const double fp32 = h200.optimizer_bytes;
  work.store = {.weights = WeightMode::kBF16, .grads = DType::kBF16, .state = DType::kBF16};
  EXPECT_NEAR(fp32 / step_floor(work, {}).optimizer_bytes, 34.0 / 16, 1e-9);
}

TEST(StepFloor, AttentionRatesLieBetweenTheirRows) {
  const Yardstick y;
  EXPECT_DOUBLE_EQ(y.attention_forward_tflops(4096, 128), 570);
  EXPECT_DOUBLE_EQ(y.attention_backward_tflops(100, 128), 159);
  EXPECT_DOUBLE_EQ(y.attention_backward_tflops(1 << 20, 64), 301);
  EXPECT_GT(y.attention_forward_tflops(2048, 128), 443);
  EXPECT_LT(y.attention_forward_tflops(2048, 128), 570);
}

}  // namespace
}  // namespace mantissa
