// visit_state() names all that the bits of the next steps follow from: a fresh engine goes on from a snapshot, and what
// is in no snapshot may hold anything between two steps.
#include <cmath>
#include <cstring>
#include <ostream>
#include <set>

#include "tests/model/small_model.h"
#include "tests/train/snapshot.h"

namespace mantissa {
namespace {

using testing::kind_of;
using testing::restore;
using testing::Snapshot;
using testing::snapshot_of;

constexpr int64_t kTokens = 64, kLength = 32, kVocab = 64;

ModelConfig small_model(const std::string& arch) {
  return test::model_of(arch, {.vocab = kVocab,
                               .hidden = 32,
                               .intermediate = 64,
                               .layers = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 16,
                               .positions = kLength,
                               .initializer_range = 0.08});
}

struct Case {
  std::string arch, recipe, weights, state;
  std::string scope = "linear+logits+norm", recompute = "none";
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.arch << " " << c.recipe << " " << c.weights << " " << c.state << " " << c.scope << " " << c.recompute;
}

std::unique_ptr<Engine> make_engine(const Case& c) {
  PrecisionConfig precision;
  precision.recipe = c.recipe, precision.weights = c.weights, precision.scope = c.scope;
  auto engine = std::make_unique<Engine>(
      small_model(c.arch), precision,
      EngineOptions{
          .tokens = kTokens, .sequence_length = kLength, .recompute = parse_recompute(c.recompute), .state = c.state});
  engine->build();
  return engine;
}

// Rows of step `step`: two micro-batches, no two steps alike.
struct Rows {
  std::vector<int32_t> ids, labels, positions, segments{0, kLength, 2 * kLength};

  Rows(uint32_t step, uint32_t micro) {
    for (int32_t i = 0; i < kTokens; ++i) {
      ids.push_back(static_cast<int32_t>((i * i * 7 + i * 13 + static_cast<int32_t>(step * 29 + micro * 5)) % kVocab));
      labels.push_back((ids.back() * 3 + 1) % kVocab);
      positions.push_back(i % kLength);
    }
  }
  MicroBatch view() const {
    return {{ids.data(), DType::kI32, {kTokens}},
            {labels.data(), DType::kI32, {kTokens}},
            {positions.data(), DType::kI32, {kTokens}},
            {segments.data(), DType::kI32, {3}}};
  }
};

// What steps give: their losses, of the evaluation after each one too, and the state they end in.
struct Outcome {
  std::vector<double> losses;
  Snapshot state;
};

void step_once(Engine& engine, uint32_t step, Outcome& outcome) {
  engine.begin_step(step);
  // The first steps weigh more, so that amaxes of long ago count.
  const int64_t valid = step < 3 ? kTokens : 4 * kTokens;
  for (const uint32_t micro : {0u, 1u}) engine.micro_step(Rows(step, micro).view(), valid, 1e-4);
  outcome.losses.push_back(engine.sums().loss);
  engine.update({.lr = 2e-2 / step, .grad_clip = 0});
  LossSums evaluation;
  engine.evaluate(Rows(99, 0).view(), evaluation);
  outcome.losses.push_back(evaluation.loss);
}

constexpr uint32_t kBefore = 4, kSteps = 7;

Outcome steps_after(Engine& engine, uint32_t step) {
  Outcome outcome;
  while (++step <= kSteps) step_once(engine, step, outcome);
  outcome.state = snapshot_of(engine);
  return outcome;
}

// "" or what differs first.
std::string difference(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < a.losses.size(); ++i)
    if (a.losses[i] != b.losses[i]) return fmt::format("loss {}: {} and {}", i, a.losses[i], b.losses[i]);
  for (const auto& [name, saved] : a.state)
    if (saved.bytes != b.state.at(name).bytes) return name;
  return "";
}

class Resume : public ::testing::TestWithParam<Case> {
 protected:
  Resume() : first(make_engine(GetParam())) {
    first->exec().state.seed = 11;
    first->initialize(11);
    Outcome ignored;
    for (uint32_t step = 1; step <= kBefore; ++step) step_once(*first, step, ignored);
    saved = snapshot_of(*first);
  }

  std::unique_ptr<Engine> first;
  Snapshot saved;
};

TEST_P(Resume, FreshEngineGoesOnInTheSameBits) {
  const Outcome straight = steps_after(*first, kBefore);
  for (const double loss : straight.losses) ASSERT_TRUE(std::isfinite(loss));
  const std::unique_ptr<Engine> second = make_engine(GetParam());
  restore(*second, saved);
  EXPECT_EQ(difference(straight, steps_after(*second, kBefore)), "");
}

// Every byte of the arena and of the scratch that is not visited is overwritten; only what is computed once, when an
// engine is built, is computed again.
TEST_P(Resume, NothingElseIsKeptInMemory) {
  const Outcome straight = steps_after(*first, kBefore);
  const std::unique_ptr<Engine> second = make_engine(GetParam());
  restore(*second, saved);
  for (uint32_t step = kBefore + 1; step <= kSteps; ++step) {
    const Snapshot kept = snapshot_of(*second);
    const std::span<std::byte> memory = second->memory();
    std::memset(memory.data(), 0xFF, memory.size());  // NaN in each floating-point format
    Exec& exec = second->exec();
    std::memset(exec.shared_scratch(), 0xFF, static_cast<size_t>(exec.scratch_bytes()));
    restore(*second, kept);
    second->decoder().fill_tables();
    Outcome one;
    step_once(*second, step, one);
    const size_t at = 2 * (step - kBefore - 1);
    EXPECT_EQ(one.losses[0], straight.losses[at]) << "step " << step;
    EXPECT_EQ(one.losses[1], straight.losses[at + 1]) << "evaluation after step " << step;
  }
  EXPECT_EQ(difference({{}, straight.state}, {{}, snapshot_of(*second)}), "");
}

// What shows that the tests above would see a tensor missing: each kind of it changes what comes after.
class LeftOut : public Resume {};
TEST_P(LeftOut, IsMissed) {
  const Outcome straight = steps_after(*first, kBefore);
  std::set<std::string> kinds;
  for (const auto& [name, tensor] : saved) kinds.insert(kind_of(name));
  const bool draws = GetParam().weights == "bf16-sr" || GetParam().recipe == "nvfp4";
  for (const std::string& kind : kinds) {
    if (kind == "engine/seed" && !draws) continue;
    const std::unique_ptr<Engine> second = make_engine(GetParam());
    restore(*second, saved, kind);
    EXPECT_NE(difference(straight, steps_after(*second, kBefore)), "") << kind;
  }
}

std::vector<Case> cases(bool every_state) {
  std::vector<Case> all;
  for (const RecipeEntry& recipe : recipe_table())
    for (const char* weights : {"fp32", "bf16", "bf16-sr"})
      for (const char* state : {"fp32", "bf16", "8bit"}) {
        const bool full = std::string(weights) == "fp32" && std::string(state) == "fp32";
        if (recipe.full_precision() ? !full : !every_state && std::string(state) != "8bit") continue;
        const char* archs[] = {"qwen3", "gpt2", "llama"};
        const char* recomputes[] = {"none", "norm+act", "block"};
        all.push_back({archs[all.size() % 3], recipe.name, weights, state,
                       all.size() % 2 == 0 ? "linear+logits+norm" : "linear", recomputes[all.size() / 3 % 3]});
      }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Case>& test) {
  std::string name = test.param.recipe + "_" + test.param.weights + "_" + test.param.state;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Recipes, Resume, ::testing::ValuesIn(cases(true)), name_of);
INSTANTIATE_TEST_SUITE_P(Recipes, LeftOut, ::testing::ValuesIn(cases(false)), name_of);

}  // namespace
}  // namespace mantissa
