// What an engine plans for a GPU, without having one.
#include "train/engine.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

ModelConfig gpt2_124m() {
  ModelConfig m;
  m.arch = "gpt2";
  m.vocab_size = 50257;
  m.hidden_size = 768;
  m.intermediate_size = 3072;
  m.num_hidden_layers = 12;
  m.num_attention_heads = 12;
  m.num_key_value_heads = 12;
  m.max_position_embeddings = 1024;
  m.resolve();
  return m;
}

EngineOptions gpu_options(int64_t tokens, const char* state = "auto") {
  return {.tokens = tokens, .sequence_length = 1024, .state = state, .gpu = true, .max_segments = tokens / 1024};
}

TEST(GpuPlan, PadsTheVocabulary) {
  PrecisionConfig precision;
  precision.weights = "bf16";
  const Engine gpu(gpt2_124m(), precision, gpu_options(32768));
  const Engine cpu(gpt2_124m(), precision, {.tokens = 32768, .sequence_length = 1024});
  const int64_t row = 768 * 2, padding = (50304 - 50257) * row;
  const MemoryLedger on_gpu = gpu.plan(), on_cpu = cpu.plan();
  const auto near = [&](const char* purpose) { return on_gpu.of(purpose) - on_cpu.of(purpose); };
  // Allocations are rounded up to 256 bytes.
  EXPECT_NEAR(static_cast<double>(near("weights")), static_cast<double>(padding), 256);
  EXPECT_NEAR(static_cast<double>(near("gradients")), static_cast<double>(padding), 256);
  EXPECT_EQ(on_gpu.of("optimizer"), on_cpu.of("optimizer"));
  EXPECT_EQ(on_gpu.of("logits"), int64_t{8192} * 50304 * 2);
}

TEST(GpuPlan, HalvesTheLogitsUntilTheyAreFew) {
  for (const auto& [tokens, rows] :
       {std::pair<int64_t, int64_t>{4096, 4096}, {8192, 8192}, {16384, 8192}, {24576, 6144}}) {
    Engine engine(gpt2_124m(), {}, gpu_options(tokens));
    EXPECT_EQ(engine.decoder().logits_rows(), rows) << tokens;
  }
}

TEST(GpuPlan, EightBitMomentsTakeAByteAndAScaleABlock) {
  PrecisionConfig precision;
  precision.weights = "bf16-sr";
  const Engine engine(gpt2_124m(), precision, gpu_options(8192, "8bit"));
  const auto n = static_cast<double>(find_arch("gpt2").params(gpt2_124m()).size());
  int64_t count = 0;
  for (const ParamSpec& s : find_arch("gpt2").params(gpt2_124m())) count += s.shape.count();
  const double wanted = 2 * static_cast<double>(count) * (1 + 4.0 / kMomentBlock);
  EXPECT_NEAR(static_cast<double>(engine.plan().of("optimizer")), wanted, n * 4 * 256);
}

TEST(GpuPlan, TakesEveryRecipe) {
  for (const RecipeEntry& recipe : recipe_table()) {
    PrecisionConfig precision;
    precision.recipe = recipe.name;
    const int64_t codes = Engine(gpt2_124m(), precision, gpu_options(8192)).plan().of("quantized weights");
    EXPECT_EQ(codes > 0, recipe.bits < 16) << recipe.name << ": " << codes;
  }
}

}  // namespace
}  // namespace mantissa
