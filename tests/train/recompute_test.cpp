// What must not change a bit: recompute plans, repeated runs, evaluation in between; and what must change nothing but
// rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>

#include "tests/model/small_model.h"
#include "train/engine.h"

namespace mantissa {
namespace {

ModelConfig small_model(const std::string& arch) {
  return test::model_of(arch, {.vocab = 128,
                               .hidden = 128,
                               .intermediate = 256,
                               .layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 32,
                               .positions = 128,
                               .initializer_range = 0.08});
}

// Two rows of 64 tokens; the first holds two documents.
struct Rows {
  std::vector<int32_t> ids, labels, positions, segments{0};
  int64_t valid = 0;

  explicit Rows(uint32_t salt) {
    for (int n : {24, 40, 64}) {
      for (int32_t i = 0; i < n; ++i) {
        ids.push_back(static_cast<int32_t>((ids.size() * 37 + ids.size() * ids.size() * 11 + salt * 101) % 128));
        labels.push_back(i + 1 < n ? static_cast<int32_t>((ids.size() * 53 + salt) % 128) : -100);
        positions.push_back(i);
        valid += i + 1 < n;
      }
      segments.push_back(static_cast<int32_t>(ids.size()));
    }
  }
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  MicroBatch view() const {
    return {{ids.data(), DType::kI32, {tokens()}},
            {labels.data(), DType::kI32, {tokens()}},
            {positions.data(), DType::kI32, {tokens()}},
            {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}};
  }
};

struct Trace {
  std::vector<double> losses;
  std::vector<std::vector<float>> grads;  // of the last step
  std::vector<std::vector<float>> params;
};

struct Plan {
  const char* recompute = "none";
  bool evaluate = false;  // an evaluation after every step
};

Trace train(const std::string& arch, const PrecisionConfig& precision, const Plan& plan) {
  const Rows a(1), b(2);
  Engine engine(small_model(arch), precision,
                {.tokens = a.tokens(), .sequence_length = 64, .recompute = parse_recompute(plan.recompute)});
  engine.build();
  engine.initialize(7);
  engine.exec().state.seed = 7;
  Trace trace;
  for (uint32_t step = 1; step <= 3; ++step) {
    engine.begin_step(step);
    engine.micro_step(a.view(), a.valid + b.valid, 1e-4);
    engine.micro_step(b.view(), a.valid + b.valid, 1e-4);
    trace.losses.push_back(engine.sums().loss);
    if (step == 3)
      for (int id = 0; id < engine.params().size(); ++id) trace.grads.push_back(engine.params().grad_values(id));
    engine.update({.lr = 1e-2});
    LossSums sums;
    if (plan.evaluate) engine.evaluate(b.view(), sums);
  }
  for (int id = 0; id < engine.params().size(); ++id) trace.params.push_back(engine.params().values(id));
  return trace;
}

void expect_same_bits(const Trace& x, const Trace& y, const std::string& what) {
  EXPECT_EQ(x.losses, y.losses) << what;
  for (size_t i = 0; i < x.grads.size(); ++i)
    EXPECT_EQ(0, std::memcmp(x.grads[i].data(), y.grads[i].data(), x.grads[i].size() * 4)) << what << " gradient " << i;
  for (size_t i = 0; i < x.params.size(); ++i)
    EXPECT_EQ(0, std::memcmp(x.params[i].data(), y.params[i].data(), x.params[i].size() * 4))
        << what << " parameter " << i;
}

struct Case {
  std::string arch, recipe, weights, scope;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.arch << " " << c.recipe << " " << c.weights << " " << c.scope;
}

class SameBits : public testing::TestWithParam<Case> {
 protected:
  PrecisionConfig precision() const {
    PrecisionConfig p;
    p.recipe = GetParam().recipe, p.weights = GetParam().weights, p.scope = GetParam().scope;
    return p;
  }
};

TEST_P(SameBits, WhateverIsRecomputed) {
  const Trace kept = train(GetParam().arch, precision(), {});
  for (const auto& grad : kept.grads) {
    double sum = 0;
    for (float g : grad) sum += std::fabs(double{g});
    EXPECT_GT(sum, 0) << "a gradient is all zero";
  }
  EXPECT_LT(kept.losses.back(), kept.losses.front());
  for (const char* plan : {"norm+act", "block"})
    expect_same_bits(kept, train(GetParam().arch, precision(), {.recompute = plan}), plan);
}

TEST_P(SameBits, TwiceAndWithEvaluations) {
  const Trace once = train(GetParam().arch, precision(), {});
  expect_same_bits(once, train(GetParam().arch, precision(), {}), "again");
  expect_same_bits(once, train(GetParam().arch, precision(), {.evaluate = true}), "with evaluations");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const RecipeEntry& recipe : recipe_table()) {
    all.push_back({"qwen3", recipe.name, "fp32", "linear"});
    if (recipe.bits == 32) continue;
    all.push_back({"qwen3", recipe.name, "bf16", "linear+logits+norm"});
  }
  all.push_back({"gpt2", recipe_table().back().name, "bf16-sr", "linear+logits"});
  for (const char* arch : {"gpt2", "llama", "qwen2"})
    all.push_back({arch, compared_by_default().front(), "fp32", "linear+logits+norm"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Recipes, SameBits, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.arch + "_" + test.param.recipe + "_" + test.param.weights + "_" + test.param.scope;
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// Recipes other than delayed quantize the BF16 value in every scope: with and without the fused norm agree bit for bit.
TEST(Scopes, FusedNormChangesOnlyDelayedScaling) {
  for (const RecipeEntry& recipe : recipe_table()) {
    if (recipe.bits >= 16) continue;
    PrecisionConfig p;
    p.recipe = recipe.name, p.scope = "linear+logits";
    const Trace apart = train("qwen3", p, {});
    p.scope = "linear+logits+norm";
    const Trace fused = train("qwen3", p, {});
    const bool delayed = recipe.make(p.options, {"x", 16, 16, 0})->input_spec(Producer::kFusedNorm).unrounded;
    EXPECT_EQ(delayed, apart.losses != fused.losses) << recipe.name;
    EXPECT_NEAR(apart.losses.back(), fused.losses.back(), 0.05 * (apart.losses.front() - apart.losses.back()))
        << recipe.name;
  }
}

// The low-precision runs learn what the FP32 run learns: losses apart by less than a share of what three steps gained.
TEST(Recipes, TrainLikeFp32) {
  PrecisionConfig p;
  p.recipe = "fp32";
  const Trace exact = train("qwen3", p, {});
  const double gained = exact.losses.front() - exact.losses.back();
  for (const RecipeEntry& recipe : recipe_table()) {
    p.recipe = recipe.name, p.scope = "linear+logits";
    const Trace trace = train("qwen3", p, {});
    for (size_t i = 0; i < trace.losses.size(); ++i)
      EXPECT_NEAR(trace.losses[i], exact.losses[i], (recipe.bits == 4 ? 0.2 : 0.05) * gained)
          << recipe.name << " step " << i;
  }
}

TEST(Memory, RecomputeAndLowPrecisionSave) {
  const auto total = [](const char* recompute) {
    PrecisionConfig p;
    return Engine(small_model("qwen3"), p,
                  {.tokens = 1024, .sequence_length = 128, .recompute = parse_recompute(recompute)})
        .plan()
        .of("activations");
  };
  EXPECT_LT(total("norm+act"), total("none"));
  EXPECT_LT(total("block"), total("norm+act"));
}

TEST(NonFinite, IsNamedBeforeTheUpdate) {
  const Rows rows(3);
  Engine engine(small_model("qwen3"), {}, {.tokens = rows.tokens(), .sequence_length = 64});
  engine.build();
  engine.initialize(7);
  std::vector<float> values = engine.params().values(engine.params().find("layers.1.mlp.up.weight"));
  values[5] = NAN;
  engine.params().set(engine.params().find("layers.1.mlp.up.weight"), values.data());
  engine.begin_step(1);
  engine.micro_step(rows.view(), rows.valid, 0);
  const std::vector<float> before = engine.params().values(0);
  try {
    engine.update({});
    FAIL() << "a gradient that is not finite was applied";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::kNonFinite);
    EXPECT_NE(std::string(e.what()).find("gradient of "), std::string::npos) << e.what();
  }
  EXPECT_EQ(before, engine.params().values(0));
  try {
    engine.find_nonfinite(rows.view());
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("layers.1.mlp.up.weight"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace mantissa
