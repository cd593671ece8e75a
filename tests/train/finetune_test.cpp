// Fine-tuning end to end: what is learned, what never enters the loss, how a step divides.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "data/tokenizer/word_counter.h"
#include "tests/base/support.h"
#include "tests/model/small_model.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

using testing::TempFolder;

struct Sample {
  std::string question, answer;
};

void write_samples(const std::string& path, const std::vector<Sample>& samples) {
  std::string lines;
  for (const Sample& s : samples) lines += Json{{"question", s.question}, {"answer", s.answer}}.dump() + "\n";
  write_atomic(path, lines);
}

// Made-up sums in words: the answer shows its steps, as GSM8K's do.
std::vector<Sample> made_up(int count) {
  const char* names[] = {"Ana", "Ben", "Chen", "Dara", "Emil", "Fatu", "Goran", "Hina"};
  const char* things[] = {"pears", "coins", "stamps", "books", "shells"};
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    const int a = 3 + i * 7 % 23, b = 2 + i * 5 % 17, c = 1 + i % 4;
    const std::string name = names[i % 8], thing = things[i % 5];
    samples.push_back({fmt::format("{} has {} {} and finds {} times {} more. How many {} has {} then?", name, a, thing,
                                   c, b, thing, name),
                       fmt::format("{} finds {} x {} = {} {}.\nThat makes {} + {} = {} {}.\n#### {}", name, c, b, c * b,
                                   thing, a, c * b, a + c * b, thing, a + c * b)});
  }
  return samples;
}

TrainConfig base_config(const TempFolder& folder) {
  TrainConfig c;
  c.run.dir = folder / "run";
  c.model = test::model_of("qwen3", {.vocab = 256,
                                     .hidden = 128,
                                     .intermediate = 256,
                                     .layers = 2,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 32,
                                     .positions = 2048});
  c.data.train = folder / "samples.jsonl";
  c.data.prompt_key = "question";
  c.data.response_key = "answer";
  c.data.validation_fraction = 0;
  c.precision.recipe = "bf16";
  c.train.save_weights = false;
  return c;
}

// Trains a tokenizer on the samples and a model on it until the answers are known by heart; the loss over all of them.
double overfit(const TempFolder& folder, const std::vector<Sample>& samples, int64_t vocabulary, int64_t steps) {
  write_samples(folder / "samples.jsonl", samples);
  tokenizer::WordCounter counter(tokenizer::Pattern::kLlama3, false);
  std::vector<std::string> texts;
  for (const Sample& s : samples) texts.insert(texts.end(), {s.question, s.answer});
  counter.add(texts);
  tokenizer::WrittenTokenizer file;
  file.pattern = tokenizer::Pattern::kLlama3;
  file.eos = "<|endoftext|>";
  file.model = tokenizer::train_bpe(counter.words(), {.vocab_size = vocabulary, .special = {file.eos}});
  tokenizer::write_tokenizer(folder / "tokenizer", file);

  TrainConfig c = base_config(folder);
  c.model.hidden_size = 192;
  c.model.intermediate_size = 512;
  c.model.num_hidden_layers = 1;
  c.model.initializer_range = 0.05;
  c.model.vocab_size = vocabulary;
  c.data.validation = c.data.train;
  c.data.tokenizer = folder / "tokenizer";
  c.data.sequence_length = 512;
  c.data.packing = "best_fit";
  c.batch.tokens = 1024;
  c.optimizer.adamw.lr = 5e-3;
  c.optimizer.adamw.weight_decay = 0;
  c.schedule.warmup_steps = 10;
  c.train.steps = steps;
  c.resolve();
  const Dataset data = Dataset::load(c.data, 1);
  EXPECT_EQ(data.report().counts.documents, 2 * static_cast<int64_t>(samples.size()));  // read for both splits
  EXPECT_EQ(data.report().counts.truncated, 0);
  EXPECT_LT(data.report().counts.learned_tokens, data.report().counts.tokens);
  return Trainer(c, data, {1, 1}).run(c.run.dir, {}).eval_loss;
}

TEST(FineTune, LearnsMadeUpAnswersByHeart) {
  const TempFolder folder;
  EXPECT_LT(overfit(folder, made_up(64), 512, 80), 0.05);
}

TEST(FineTune, LearnsGsm8kAnswersByHeart) {
  const char* root = std::getenv("MANTISSA_TEST_DATA");
  const std::string path = root == nullptr ? "" : std::string(root) + "/sft/gsm8k-train.jsonl";
  if (path.empty() || !exists(path)) GTEST_SKIP() << "MANTISSA_TEST_DATA names no folder with sft/gsm8k-train.jsonl";
  std::vector<Sample> samples;
  for (const std::string& line : split(read_text(path), '\n')) {
    const Json row = parse_json(line, path);
    samples.push_back({row["question"], row["answer"]});
    if (samples.size() == 64) break;
  }
  const TempFolder folder;
  EXPECT_LT(overfit(folder, samples, 1536, 300), 0.05);
}

// Loss and every gradient of one batch, divided by its labels, under FP32.
struct Trace {
  double loss = 0;
  std::vector<std::vector<float>> grads;
};

Trace trace(const TrainConfig& c, const Batch& batch) {
  Engine engine(c.model, c.precision,
                {.tokens = static_cast<int64_t>(batch.ids.size()), .sequence_length = batch.sequence_length});
  engine.build();
  engine.initialize(3);
  engine.begin_step(1);
  engine.micro_step(view(batch), batch.valid_tokens, 0);
  Trace out{engine.sums().loss, {}};
  for (int id = 0; id < engine.params().size(); ++id) out.grads.push_back(engine.params().grad_values(id));
  return out;
}

TrainConfig row_config(const TempFolder& folder, int64_t sequence_length) {
  TrainConfig c = base_config(folder);
  c.data.sequence_length = sequence_length;
  c.data.packing = "none";
  c.data.prompt_suffix = "";
  c.batch.tokens = sequence_length;
  c.precision.weights = "fp32";
  c.precision.recipe = "fp32";
  c.resolve();
  return c;
}

TEST(FineTune, LabelsStandAtTheAnswerAlone) {
  const TempFolder folder;
  write_samples(folder / "samples.jsonl", {{"12345", "678"}});
  const TrainConfig c = row_config(folder, 16);
  const Dataset data = Dataset::load(c.data, 1);
  Batch batch;
  data.batch(Split::kTrain, 0, 1, batch);
  std::vector<int32_t> expected(16, kIgnoredLabel);
  expected[4] = '6', expected[5] = '7', expected[6] = '8', expected[7] = 0;  // EOS
  EXPECT_EQ(batch.labels, expected);
  EXPECT_EQ(batch.valid_tokens, 4);
}

TEST(FineTune, MaskedTokensNeverEnterTheLoss) {
  const TempFolder folder;
  write_samples(folder / "samples.jsonl", {{"what is asked", "told"}});
  const TrainConfig c = row_config(folder, 32);
  const Dataset data = Dataset::load(c.data, 1);
  Batch batch;
  data.batch(Split::kTrain, 0, 1, batch);
  ASSERT_EQ(batch.valid_tokens, 5);
  const Trace whole = trace(c, batch);

  // The loss is the mean over the answer's positions, from the logits.
  {
    Engine engine(c.model, c.precision, {.tokens = 32, .sequence_length = 32, .training = false});
    engine.build();
    engine.initialize(3);
    std::vector<float> logits(32 * 256);
    engine.logits(view(batch), {logits.data(), DType::kF32, {32, 256}});
    double sum = 0;
    for (size_t t = 0; t < 32; ++t) {
      if (batch.labels[t] == kIgnoredLabel) continue;
      double all = 0;
      for (size_t v = 0; v < 256; ++v) all += std::exp(static_cast<double>(logits[t * 256 + v]));
      sum += std::log(all) - static_cast<double>(logits[t * 256 + static_cast<size_t>(batch.labels[t])]);
    }
    EXPECT_NEAR(whole.loss, sum, 1e-4 * sum);
  }

  // What stands behind the last label reaches no gradient, whatever it is.
  Batch other = batch;
  size_t last = 0;
  for (size_t t = 0; t < 32; ++t)
    if (batch.labels[t] != kIgnoredLabel) last = t;
  ASSERT_LT(last + 8, 32u);
  for (size_t t = last + 1; t < 32; ++t) other.ids[t] = static_cast<int32_t>(100 + t);
  const Trace changed = trace(c, other);
  EXPECT_EQ(changed.loss, whole.loss);
  EXPECT_EQ(changed.grads, whole.grads);

  // With a label there it would.
  other.labels[last + 1] = 7;
  EXPECT_NE(trace(c, other).grads, whole.grads);

  // A row without labels beside it adds nothing either.
  Batch two = batch;
  for (int32_t i = 0; i < 32; ++i) {
    two.ids.push_back(40 + i);
    two.labels.push_back(kIgnoredLabel);
    two.positions.push_back(i);
  }
  two.segments.push_back(64);
  two.rows = 2;
  const Trace beside = trace(c, two);
  EXPECT_NEAR(beside.loss, whole.loss, 1e-6 * whole.loss);
  for (size_t p = 0; p < whole.grads.size(); ++p)
    for (size_t i = 0; i < whole.grads[p].size(); ++i) ASSERT_NEAR(beside.grads[p][i], whole.grads[p][i], 1e-6);
}

// Rows without a label come from files of tokens, and from documents of one token as here: letters alone in rows of 8,
// a few words between them.
TrainConfig letters_config(const TempFolder& folder, int64_t rows_a_step, const std::string& micro_batch) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += i % 12 == 0 ? "a word\n" : "a\n";
  write_atomic(folder / "letters.txt", text);
  TrainConfig c = row_config(folder, 8);
  c.data = {};
  c.data.train = folder / "letters.txt";
  c.data.document_separator = "line";
  c.data.validation_fraction = 0;
  c.data.append_eos = false;
  c.data.sequence_length = 8;
  c.batch.tokens = 8 * rows_a_step;
  c.batch.micro_batch = micro_batch;
  c.schedule.warmup_steps = 1;
  c.resolve();
  return c;
}

// Labels of the first rows of training.
std::vector<int64_t> labels_of_rows(const Dataset& data, int64_t rows) {
  std::vector<int64_t> labels;
  Batch batch;
  for (int64_t row = 0; row < rows; ++row) {
    data.batch(Split::kTrain, row, 1, batch);
    labels.push_back(batch.valid_tokens);
  }
  return labels;
}

struct Steps {
  std::vector<double> losses;
  std::vector<std::string> warnings;
  RunResult result;
};

Steps train(const TrainConfig& c, const Dataset& data) {
  Steps steps;
  TrainHooks hooks;
  hooks.events = [&](const Event& event) {
    std::visit(On{[&](const StepReport& r) { steps.losses.push_back(r.loss); },
                  [&](const Warning& w) { steps.warnings.push_back(w.text); }, [](const auto&) {}},
               event);
  };
  steps.result = Trainer(c, data, {1, 1}).run(c.run.dir, hooks);
  return steps;
}

TEST(FineTune, AStepWithoutALabelIsCountedAndLeftOut) {
  const TempFolder folder;
  const TrainConfig c = letters_config(folder, 1, "1");
  const Dataset data = Dataset::load(c.data, 5);
  const Steps steps = train(c, data);
  const std::vector<int64_t> labels = labels_of_rows(data, steps.result.steps);
  const auto idle = std::count(labels.begin(), labels.end(), 0);
  ASSERT_GT(idle, 0);
  ASSERT_LT(idle, steps.result.steps);
  double tail = 0;
  int64_t counted = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    EXPECT_EQ(std::isnan(steps.losses[i]), labels[i] == 0) << "step " << i + 1;
    if (labels[i] > 0 && i >= labels.size() - labels.size() / 10) tail += steps.losses[i], ++counted;
  }
  ASSERT_GT(counted, 0);
  EXPECT_DOUBLE_EQ(steps.result.loss, tail / static_cast<double>(counted));
  ASSERT_EQ(steps.warnings.size(), 1u);
  EXPECT_EQ(steps.warnings[0].rfind(fmt::format("{} steps had no token with a label", idle), 0), 0u)
      << steps.warnings[0];
}

// At 1e-6 a BF16 weight hardly ever moves; that is a loss where updates are rounded to nearest alone.
TEST(FineTune, UpdatesThatRoundAwayAreSaidWhereTheyAreLost) {
  for (const char* weights : {"bf16", "bf16-sr"}) {
    const TempFolder folder;
    TrainConfig c = letters_config(folder, 16, "16");
    c.precision.recipe = "bf16", c.precision.weights = weights;
    c.optimizer.adamw.lr = 1e-6;
    const Dataset data = Dataset::load(c.data, 5);
    const Steps steps = train(c, data);
    if (std::string(weights) != "bf16") {
      EXPECT_TRUE(steps.warnings.empty()) << weights << ": " << steps.warnings[0];
      continue;
    }
    ASSERT_EQ(steps.warnings.size(), 1u);
    EXPECT_NE(steps.warnings[0].find("% of the BF16 weights did not move"), std::string::npos) << steps.warnings[0];
  }
}

TEST(FineTune, AStepDividesByItsLabelsHoweverItIsCut) {
  const TempFolder folder;
  const TrainConfig apart = letters_config(folder, 4, "1"), together = letters_config(folder, 4, "4");
  const Dataset data = Dataset::load(apart.data, 5);
  const Steps a = train(apart, data), b = train(together, data);
  const std::vector<int64_t> labels = labels_of_rows(data, 4 * a.result.steps);
  int64_t mixed = 0;  // steps with labels in some micro-batches, none in others
  for (size_t step = 0; step < a.losses.size(); ++step) {
    const auto begin = labels.begin() + static_cast<std::ptrdiff_t>(4 * step);
    const auto empty = std::count(begin, begin + 4, 0);
    mixed += empty > 0 && empty < 4;
    ASSERT_EQ(std::isnan(a.losses[step]), empty == 4);
    if (empty < 4) {
      EXPECT_NEAR(a.losses[step], b.losses[step], 1e-4 * b.losses[step]) << "step " << step + 1;
    }
  }
  EXPECT_GT(mixed, 0);
}

}  // namespace
}  // namespace mantissa
