// The same bits from two runs and from every recompute plan, under every recipe, on packed rows.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "train/engine.h"

namespace mantissa {
namespace {

constexpr int64_t kTokens = 128, kLength = 64, kVocab = 64;
constexpr int kSteps = 3;

ModelConfig tiny_model(const char* arch) {
  ModelConfig model;
  model.arch = arch;
  model.vocab_size = kVocab;
  model.hidden_size = 128;
  model.intermediate_size = 256;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 4;
  model.num_key_value_heads = std::string(arch) == "gpt2" ? 4 : 2;
  model.head_dim = 32;
  model.max_position_embeddings = kLength;
  model.initializer_range = 0.1;
  model.resolve();
  return model;
}

// Two rows: documents of 40 + 24 and of 64 tokens; the last position of each has no label.
struct PackedBatch {
  PackedBatch() {
    std::mt19937 generator(3);
    for (size_t s = 0; s + 1 < segments.size(); ++s)
      for (int32_t t = segments[s]; t < segments[s + 1]; ++t) {
        ids.push_back(static_cast<int32_t>(generator() % kVocab));
        positions.push_back(t - segments[s]);
        labels.push_back(t + 1 == segments[s + 1] ? -100 : static_cast<int32_t>(generator() % kVocab));
      }
  }
  MicroBatch view() const {
    const auto of = [](const std::vector<int32_t>& v) {
      return ConstTensor(v.data(), DType::kI32, {static_cast<int64_t>(v.size())});
    };
    return {of(ids), of(labels), of(positions), of(segments)};
  }
  static constexpr int64_t kValid = kTokens - 3;

  std::vector<int32_t> segments{0, 40, 64, 128}, ids, labels, positions;
};

struct Trace {
  std::vector<double> losses, norms;
  std::vector<float> grads;    // of the last step
  std::vector<float> weights;  // after it

  bool operator==(const Trace&) const = default;
};

Trace train(const char* arch, const std::string& recipe, const std::string& weights, const char* recompute) {
  PrecisionConfig precision;
  precision.recipe = recipe;
  precision.weights = weights;
  precision.scope = "linear+logits+norm";
  Engine engine(tiny_model(arch), precision,
                {.tokens = kTokens, .sequence_length = kLength, .recompute = parse_recompute(recompute)});
  engine.build();
  engine.initialize(5);
  engine.exec().seed = 5;
  const PackedBatch batch;
  Trace trace;
  for (uint32_t step = 0; step < kSteps; ++step) {
    engine.begin_step(step);
    engine.micro_step(batch.view(), PackedBatch::kValid, 0);
    trace.losses.push_back(engine.sums().loss);
    trace.norms.push_back(engine.update({.lr = 1e-2}).grad_norm);
  }
  for (int id = 0; id < engine.params().size(); ++id) {
    for (const float g : engine.params().grad_values(id)) trace.grads.push_back(g);
    for (const float w : engine.params().values(id)) trace.weights.push_back(w);
  }
  return trace;
}

class Determinism : public testing::TestWithParam<const char*> {};

TEST_P(Determinism, TwoRunsAgreeInEveryBit) {
  const std::string weights = std::string(GetParam()) == "fp32" ? "fp32" : "bf16-sr";
  const Trace first = train("qwen3", GetParam(), weights, "none");
  EXPECT_LT(first.losses.back(), first.losses.front());
  EXPECT_TRUE(first == train("qwen3", GetParam(), weights, "none"));
}

TEST_P(Determinism, RecomputePlansAgreeInEveryBit) {
  for (const char* arch : {"gpt2", "qwen3"}) {
    const Trace kept = train(arch, GetParam(), "fp32", "none");
    for (const char* plan : {"norm+act", "block"}) {
      const Trace replayed = train(arch, GetParam(), "fp32", plan);
      EXPECT_EQ(kept.losses, replayed.losses) << arch << " " << plan;
      EXPECT_TRUE(kept.grads == replayed.grads) << arch << " " << plan;
      EXPECT_TRUE(kept == replayed) << arch << " " << plan;
    }
  }
}

std::vector<const char*> recipe_names() {
  std::vector<const char*> names;
  for (const RecipeEntry& entry : recipe_table()) names.push_back(entry.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Recipes, Determinism, testing::ValuesIn(recipe_names()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace mantissa
