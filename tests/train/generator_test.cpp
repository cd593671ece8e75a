// Decoding with a KV cache against the decoder that trains, on tests/golden/<model> and on a longer random model.
#include "generation/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/safetensors.h"
#include "tests/ops/finite_difference.h"
#include "train/engine.h"

namespace mantissa {
namespace {

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

// An engine over one sequence, and its logits at every position.
struct Model {
  Model(const ModelConfig& model, const char* recipe, std::vector<int32_t> tokens) : ids(std::move(tokens)) {
    PrecisionConfig precision;
    precision.recipe = recipe;
    const auto n = static_cast<int64_t>(ids.size());
    engine = std::make_unique<Engine>(model, precision, EngineOptions{.tokens = n, .sequence_length = n});
    engine->build();
  }
  std::span<const float> logits_at(size_t position) {
    const size_t v = static_cast<size_t>(engine->decoder().model().vocab_size), n = ids.size();
    if (all.empty()) {
      std::vector<int32_t> positions, segments = {0, static_cast<int32_t>(n)};
      for (size_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(i));
      const Shape t{static_cast<int64_t>(n)};
      all.resize(n * v);
      engine->logits({.ids = {ids.data(), DType::kI32, t},
                      .labels = {},
                      .positions = {positions.data(), DType::kI32, t},
                      .segments = {segments.data(), DType::kI32, {2}}},
                     {all.data(), DType::kF32, {static_cast<int64_t>(n), static_cast<int64_t>(v)}});
    }
    return {all.data() + position * v, v};
  }
  Generator generator(int64_t room = 0) {
    return {engine->exec(), engine->decoder().model(), engine->params(),
            room > 0 ? room : static_cast<int64_t>(ids.size())};
  }
  std::span<const int32_t> part(size_t begin, size_t end) const { return std::span(ids).subspan(begin, end - begin); }

  std::unique_ptr<Engine> engine;
  std::vector<int32_t> ids;
  std::vector<float> all;
};

constexpr double kF32Bound = 1e-5;  // sums in another order alone

// The same model in FP32 on the BF16 values of its weights: what both BF16 paths round from.
Model exact_model(const Model& m) {
  Model exact(m.engine->decoder().model(), "fp32", m.ids);
  for (int id = 0; id < m.engine->params().size(); ++id) {
    std::vector<float> values = m.engine->params().values(id);
    for (float& x : values) x = to_float(to_bf16(x));
    exact.engine->params().set(id, values.data());
  }
  return exact;
}

// Generation rounds no more than training: over the given positions its error against the exact logits is at most the
// decoder's. `generated` holds the logits of the positions end to end.
void expect_no_less_exact(Model& m, const std::vector<float>& generated, const std::vector<size_t>& positions) {
  Model exact = exact_model(m);
  std::vector<float> trained, wanted;
  for (size_t t : positions) {
    const auto a = m.logits_at(t), b = exact.logits_at(t);
    trained.insert(trained.end(), a.begin(), a.end());
    wanted.insert(wanted.end(), b.begin(), b.end());
  }
  EXPECT_LT(test::relative_error(generated, wanted), test::relative_error(trained, wanted));
  EXPECT_GT(test::relative_error(generated, wanted), 1e-6);  // it is BF16
}

Model golden_model(const std::string& arch, const char* recipe) {
  const std::string folder = kGolden + arch;
  const auto file = safetensors::Reader::open(folder + "/golden.safetensors");
  const auto& view = file.at("input_ids");
  std::vector<int64_t> wide(static_cast<size_t>(view.shape[1]));
  std::memcpy(wide.data(), view.bytes.data(), wide.size() * sizeof(int64_t));
  Model m(read_hf_config(folder), recipe, {wide.begin(), wide.end()});
  m.engine->load(folder);
  return m;
}

class Generation : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Generation, LogitsAreTheDecodersAtEveryPrefix) {
  const auto [arch, recipe] = GetParam();
  Model m = golden_model(arch, recipe);
  Generator generator = m.generator();
  std::vector<float> generated;
  std::vector<size_t> positions;
  for (size_t t = 0; t < m.ids.size(); ++t) {
    const std::span<const float> logits = generator.append(m.part(t, t + 1));
    generated.insert(generated.end(), logits.begin(), logits.end());
    positions.push_back(t);
    if (std::string(recipe) == "fp32") {
      ASSERT_LT(test::relative_error(logits, m.logits_at(t)), kF32Bound) << "behind token " << t;
    }
  }
  EXPECT_EQ(generator.length(), static_cast<int64_t>(m.ids.size()));
  if (std::string(recipe) == "bf16") expect_no_less_exact(m, generated, positions);
}

TEST_P(Generation, BitsDoNotDependOnTheCalls) {
  const auto [arch, recipe] = GetParam();
  Model m = golden_model(arch, recipe);
  Generator whole = m.generator(), cut = m.generator();
  const size_t n = m.ids.size();
  const auto same = [&](std::span<const float> a, std::span<const float> b) {
    return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  };
  const std::span<const float> want = whole.append(m.ids);
  for (size_t t = 0; t + 1 < n; ++t) cut.append(m.part(t, t + 1));
  EXPECT_TRUE(same(cut.append(m.part(n - 1, n)), want));
  cut.reset(5);  // keeps five tokens
  EXPECT_EQ(cut.length(), 5);
  cut.append(m.part(5, 7));
  EXPECT_TRUE(same(cut.append(m.part(7, n)), want));
  cut.reset();
  EXPECT_TRUE(same(cut.append(m.ids), want));
}

INSTANTIATE_TEST_SUITE_P(Models, Generation,
                         testing::Combine(testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                                          testing::Values("fp32", "bf16")),
                         [](const auto& p) { return std::string(std::get<0>(p.param)) + "_" + std::get<1>(p.param); });

ModelConfig small_model() {
  ModelConfig m;
  m.vocab_size = 101;
  m.hidden_size = 64, m.intermediate_size = 96;
  m.num_hidden_layers = 2, m.num_attention_heads = 4, m.num_key_value_heads = 2, m.head_dim = 16;
  m.max_position_embeddings = 700;
  m.tie_word_embeddings = false;
  m.initializer_range = 0.2;
  m.resolve();
  return m;
}

std::vector<int32_t> some_tokens(int32_t n) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < n; ++i) ids.push_back(i * i % 101);
  return ids;
}

// A prompt of several passes.
TEST(GenerationLong, PromptsLongerThanAPassAgree) {
  for (const char* recipe : {"fp32", "bf16", "mxfp8"}) {
    SCOPED_TRACE(recipe);
    Model m(small_model(), recipe, some_tokens(640));
    m.engine->initialize(3);
    Generator whole = m.generator(), cut = m.generator();
    const std::span<const float> logits = whole.append(m.ids);
    cut.append(m.part(0, 300));
    cut.append(m.part(300, 301));
    EXPECT_EQ(std::memcmp(cut.append(m.part(301, 640)).data(), logits.data(), logits.size_bytes()), 0);
    if (std::string(recipe) == "fp32") {
      EXPECT_LT(test::relative_error(logits, m.logits_at(639)), kF32Bound);
    }
    std::vector<float> generated;
    std::vector<size_t> positions;
    cut.reset();
    for (size_t begin = 0; begin < 640; begin += 64) {
      const std::span<const float> next = cut.append(m.part(begin, begin + 64));
      generated.insert(generated.end(), next.begin(), next.end());
      positions.push_back(begin + 63);
    }
    // A quantized recipe trains in MXFP8 and generates from its BF16 weights.
    if (std::string(recipe) != "fp32") expect_no_less_exact(m, generated, positions);
  }
}

TEST(GenerationWeights, AreReadAtEveryCall) {
  Model m(small_model(), "fp32", some_tokens(32));
  m.engine->initialize(1);
  Generator generator = m.generator();
  generator.append(m.ids);
  m.engine->initialize(2);
  generator.reset();
  EXPECT_LT(test::relative_error(generator.append(m.ids), m.logits_at(31)), kF32Bound);
}

TEST(GenerationRoom, IsPlannedAndRefused) {
  Model m(small_model(), "bf16", some_tokens(16));
  const auto code_of = [&](int64_t room) {
    try {
      m.generator(room);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("700 positions"), std::string::npos) << error.what();
      return error.code();
    }
    return Exit::kDone;
  };
  EXPECT_EQ(code_of(700), Exit::kDone);
  EXPECT_EQ(code_of(701), Exit::kUsage);
  Generator generator = m.generator(20);
  generator.append(m.ids);
  EXPECT_THROW(generator.append(m.ids), Error);
  EXPECT_THROW(generator.append({}), Error);
  // Keys and values of 32 positions (20 rounded up), 2 layers, 2 heads of 16, BF16.
  EXPECT_EQ(Generator::plan(small_model(), DType::kBF16, 20).of("kv cache"), 2 * 2 * 32 * 2 * 16 * 2);
}

}  // namespace
}  // namespace mantissa
