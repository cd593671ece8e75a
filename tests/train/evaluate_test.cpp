// Losses in sliding windows against sums over the decoder's logits, one window at a time.
#include "train/evaluate.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

ModelConfig small_model() {
  ModelConfig m;
  m.arch = "llama";
  m.vocab_size = 256;
  m.hidden_size = 64, m.intermediate_size = 96;
  m.num_hidden_layers = 2, m.num_attention_heads = 4, m.num_key_value_heads = 2, m.head_dim = 16;
  m.max_position_embeddings = 64;
  m.initializer_range = 0.3;  // losses far from uniform
  m.resolve();
  return m;
}

std::unique_ptr<Engine> make_engine(int64_t tokens, int64_t context, const char* recipe = "fp32") {
  PrecisionConfig precision;
  precision.recipe = recipe;
  auto engine = std::make_unique<Engine>(
      small_model(), precision,
      EngineOptions{.tokens = tokens, .sequence_length = context, .recompute = Recompute::kBlock, .training = false});
  engine->build();
  engine->initialize(11);
  return engine;
}

EncodedDocument document(int n, uint32_t seed) {
  EncodedDocument d;
  for (int i = 0; i < n; ++i) d.ids.push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 24));
  return d;
}

// -log p of every token of `ids` but the first, read as one window, in double from the decoder's logits.
std::vector<double> losses_of(const std::vector<int32_t>& ids) {
  const auto n = static_cast<int64_t>(ids.size());
  auto engine = make_engine(n, n);
  std::vector<float> logits(static_cast<size_t>(n * 256));
  std::vector<int32_t> positions, segments = {0, static_cast<int32_t>(n)};
  for (int32_t i = 0; i < n; ++i) positions.push_back(i);
  engine->logits({.ids = {ids.data(), DType::kI32, {n}},
                  .labels = {},
                  .positions = {positions.data(), DType::kI32, {n}},
                  .segments = {segments.data(), DType::kI32, {2}}},
                 {logits.data(), DType::kF32, {n, 256}});
  std::vector<double> losses;
  for (int64_t i = 0; i + 1 < n; ++i) {
    const float* row = logits.data() + i * 256;
    double sum = 0;
    for (int v = 0; v < 256; ++v) sum += std::exp(double{row[v]});
    losses.push_back(std::log(sum) - double{row[ids[static_cast<size_t>(i + 1)]]});
  }
  return losses;
}

// The definition: token t is predicted in the first window that holds token t - 1.
double expected_loss(const EncodedDocument& d, int64_t context, int64_t stride, int64_t& predicted) {
  double total = 0;
  const auto n = static_cast<int64_t>(d.ids.size());
  for (int64_t t = 1; t < n; ++t) {
    if (!d.learned.empty() && !d.learned[static_cast<size_t>(t)]) continue;
    int64_t begin = 0;
    while (t - 1 >= begin + context) begin += stride;
    const std::vector<int32_t> window(d.ids.begin() + begin, d.ids.begin() + t + 1);
    total += losses_of(window).back();
    ++predicted;
  }
  return total;
}

struct Case {
  const char* name;
  int64_t context, stride;
};

class Windows : public testing::TestWithParam<Case> {};

TEST_P(Windows, EveryTokenIsPredictedOnceInItsWindow) {
  const auto [name, context, stride] = GetParam();
  const Tokenizer tokenizer = Tokenizer::bytes();
  auto engine = make_engine(64, context);
  TextEvaluator evaluator(*engine, tokenizer, context, stride);
  double want = 0;
  int64_t predicted = 0, documents = 0;
  // Lengths around the context, and documents without anything to predict.
  for (int n : {1, 2, 5, 16, 17, 18, 33, 0}) {
    const EncodedDocument d = document(n, static_cast<uint32_t>(n));
    evaluator.add(d);
    want += expected_loss(d, context, stride, predicted);
    ++documents;
  }
  const TextLoss& got = evaluator.finish();
  EXPECT_EQ(got.tokens, predicted);
  EXPECT_EQ(got.tokens, 1 + 4 + 15 + 16 + 17 + 32);
  EXPECT_EQ(got.bytes, got.tokens);  // a token is a byte
  EXPECT_EQ(got.documents, documents);
  // FP32 losses of about 10 nats, each to 1e-6 of its size.
  EXPECT_NEAR(got.loss, want, 1e-5 * want);
  EXPECT_DOUBLE_EQ(got.perplexity(), std::exp(got.loss / static_cast<double>(got.tokens)));
  EXPECT_DOUBLE_EQ(got.bits_per_byte(), got.loss / std::log(2.0) / static_cast<double>(got.bytes));
}

INSTANTIATE_TEST_SUITE_P(Strides, Windows,
                         testing::Values(Case{"disjoint", 16, 16}, Case{"half", 16, 8}, Case{"one", 16, 1},
                                         Case{"odd", 13, 5}, Case{"whole", 64, 64}, Case{"bigram", 1, 1}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(WindowsWithMasks, CountLearnedTokensAlone) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  auto engine = make_engine(64, 16);
  TextEvaluator evaluator(*engine, tokenizer, 16, 8);
  EncodedDocument d = document(40, 3);
  d.learned.assign(40, 0);
  for (int i : {0, 9, 10, 11, 30}) d.learned[static_cast<size_t>(i)] = 1;  // token 0 is nobody's label
  int64_t predicted = 0;
  const double want = expected_loss(d, 16, 8, predicted);
  evaluator.add(d);
  EncodedDocument none = document(30, 4);
  none.learned.assign(30, 0);
  evaluator.add(none);
  const TextLoss& got = evaluator.finish();
  EXPECT_EQ(predicted, 4);
  EXPECT_EQ(got.tokens, 4);
  EXPECT_EQ(got.windows, 2);  // those that hold no label are not run
  EXPECT_NEAR(got.loss, want, 1e-5 * want);
}

// Short documents share batches, and their neighbours change no bit of their losses.
TEST(WindowsInBatches, ArePackedWithoutChangingALoss) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  for (const char* recipe : {"fp32", "bf16"}) {
    auto engine = make_engine(256, 64, recipe);
    double alone = 0;
    TextEvaluator together(*engine, tokenizer, 64, 64);
    for (int i = 0; i < 40; ++i) {
      const EncodedDocument d = document(20 + i % 7, static_cast<uint32_t>(i));
      together.add(d);
      TextEvaluator one(*engine, tokenizer, 64, 64);
      one.add(d);
      alone += one.finish().loss;
    }
    const TextLoss& got = together.finish();
    EXPECT_EQ(got.batches, 4) << "40 windows of 22 on average, 11 a batch of 256";
    EXPECT_LT(got.padding, 256);
    // Sums of doubles in another grouping.
    EXPECT_NEAR(got.loss, alone, 1e-12 * alone);
  }
}

TEST(WindowsInBatches, NothingToPredictIsNoNumber) {
  const Tokenizer tokenizer = Tokenizer::bytes();
  auto engine = make_engine(64, 16);
  TextEvaluator evaluator(*engine, tokenizer, 16, 16);
  evaluator.add(document(1, 1));
  const TextLoss& got = evaluator.finish();
  EXPECT_EQ(got.tokens, 0);
  EXPECT_EQ(got.batches, 0);
  EXPECT_TRUE(std::isnan(got.per_token()));
  EXPECT_TRUE(std::isnan(got.bits_per_byte()));
  EXPECT_THROW(TextEvaluator(*engine, tokenizer, 16, 17), Error);
  EXPECT_THROW(TextEvaluator(*engine, tokenizer, 65, 1), Error);
}

}  // namespace
}  // namespace mantissa
