// Nothing is allocated during a step: operator new of this binary counts while a counter runs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <ostream>

#include "base/file.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "generation/generator.h"
#include "tests/base/support.h"
#include "tests/model/small_model.h"
#include "train/engine.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* count_and_allocate(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(size_t bytes) { return count_and_allocate(bytes); }
void* operator new[](size_t bytes) { return count_and_allocate(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace mantissa {
namespace {

ModelConfig small_model(const std::string& arch) {
  return test::model_of(arch, {.vocab = 64,
                               .hidden = 64,
                               .intermediate = 128,
                               .layers = 2,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = 32,
                               .positions = 64});
}

struct Case {
  std::string arch, recipe, weights, scope, recompute;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.arch << " " << c.recipe << " " << c.weights << " " << c.scope << " " << c.recompute;
}

class StepAllocates : public ::testing::TestWithParam<Case> {};

TEST_P(StepAllocates, Nothing) {
  const Case& c = GetParam();
  PrecisionConfig precision;
  precision.recipe = c.recipe, precision.weights = c.weights, precision.scope = c.scope;
  constexpr int64_t kTokens = 128;
  Engine engine(small_model(c.arch), precision,
                {.tokens = kTokens, .sequence_length = 64, .recompute = parse_recompute(c.recompute)});
  engine.build();
  engine.initialize(3);
  std::vector<int32_t> ids, labels, positions;
  for (int32_t i = 0; i < kTokens; ++i) {
    ids.push_back(i * 7 % 64);
    labels.push_back(i * 11 % 64);
    positions.push_back(i % 64);
  }
  const std::vector<int32_t> segments = {0, 64, 128};
  const MicroBatch batch = {{ids.data(), DType::kI32, {kTokens}},
                            {labels.data(), DType::kI32, {kTokens}},
                            {positions.data(), DType::kI32, {kTokens}},
                            {segments.data(), DType::kI32, {3}}};
  for (uint32_t step = 1; step <= 6; ++step) {
    allocations = 0;
    counting = step >= 3;
    engine.begin_step(step);
    engine.micro_step(batch, 2 * kTokens, 1e-4);
    engine.micro_step(batch, 2 * kTokens, 1e-4);
    engine.update({});
    LossSums sums;
    engine.evaluate(batch, sums);
    counting = false;
    EXPECT_EQ(allocations.load(), 0) << "step " << step;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all = {{"gpt2", "bf16", "fp32", "linear", "none"}};
  for (const RecipeEntry& recipe : recipe_table()) {
    all.push_back({"qwen3", recipe.name, "fp32", "linear", "norm+act"});
    if (recipe.bits < 16) all.push_back({"llama", recipe.name, "bf16-sr", "linear+logits+norm", "block"});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Recipes, StepAllocates, ::testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.arch + "_" + test.param.recipe;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

TEST(GenerationAllocates, Nothing) {
  for (const char* arch : {"gpt2", "qwen3"})
    for (const char* recipe : {"fp32", "bf16"}) {
      PrecisionConfig precision;
      precision.recipe = recipe;
      Engine engine(small_model(arch), precision, {.tokens = 64, .sequence_length = 64, .training = false});
      engine.build();
      engine.initialize(3);
      Generator generator(engine.exec(), engine.decoder().model(), engine.params(), 64);
      const std::vector<int32_t> prompt(40, 7);
      for (int round = 0; round < 3; ++round) {
        allocations = 0;
        counting = round > 0;
        generator.reset();
        generator.append(prompt);
        for (int32_t id = 0; id < 20; ++id) generator.append(std::span(&id, 1));
        counting = false;
        EXPECT_EQ(allocations.load(), 0) << arch << " " << recipe;
      }
    }
}

// Documents of 49 words, in rows of 64 bytes.
DataConfig words_in(const testing::TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += i % 50 == 49 ? "\n\n" : "word ";
  write_atomic(folder / "text.txt", text);
  DataConfig config;
  config.train = folder / "text.txt";
  config.sequence_length = 64;
  return config;
}

TEST(BatchAllocates, Nothing) {
  const testing::TempFolder folder;
  const Dataset data = Dataset::load(words_in(folder), 1);
  Batch batch;
  batch.reserve(4, 64);
  allocations = 0;
  counting = true;
  int64_t valid = 0;
  // Past the end of a pass, where the order is drawn anew.
  for (int64_t first = 0; first < 3 * data.rows(Split::kTrain); first += 4) {
    data.batch(Split::kTrain, first, 4, batch);
    valid += batch.valid_tokens;
  }
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
  EXPECT_GT(valid, 0);
}

TEST(LoaderAllocates, NothingOnceItRuns) {
  const testing::TempFolder folder;
  DataConfig config = words_in(folder);
  config.packing = "best_fit";
  const Dataset data = Dataset::load(config, 1);
  Loader loader(data, {.steps = 300, .accumulation = 2, .micro_rows = 4});
  loader.next();
  allocations = 0;
  counting = true;
  int64_t valid = 0;
  for (int64_t step = 2; step <= 300; ++step) valid += loader.next().valid_tokens;
  counting = false;
  EXPECT_EQ(allocations.load(), 0);
  EXPECT_GT(valid, 0);
}

// The counter itself: a test of zero that could not count would always pass.
TEST(AllocationCounter, Counts) {
  allocations = 0;
  counting = true;
  delete new int(1);
  std::vector<int> values(100);
  counting = false;
  EXPECT_GE(allocations.load(), 1);
  EXPECT_EQ(values.size(), 100u);
}

}  // namespace
}  // namespace mantissa
