// What a config that leaves sizes out gets: defaults of the architecture, the vocabulary of the tokenizer.
#include <gtest/gtest.h>

#include "base/file.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "tests/base/support.h"
#include "train/config.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

TrainConfig read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  TrainConfig config;
  config::Source::from_text(yaml, "a.yaml", overrides).read([&](config::Fields& f) { config.describe(f); });
  config.resolve();
  return config;
}

TEST(ModelDefaults, OfTheArchitecture) {
  const ModelConfig gpt2 = read("model: {arch: gpt2, num_attention_heads: 8}").model;
  EXPECT_EQ(gpt2.norm_eps, 1e-5);
  EXPECT_EQ(gpt2.num_key_value_heads, 8);
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    const ModelConfig m = read(std::string("model: {arch: ") + arch + "}").model;
    EXPECT_EQ(m.norm_eps, 1e-6);
    EXPECT_EQ(m.num_key_value_heads, 2);
  }
  // What is given stays, be it another architecture's default; a dump says the same again.
  TrainConfig given = read("model: {arch: gpt2, norm_eps: 1e-6}");
  EXPECT_EQ(given.model.norm_eps, 1e-6);
  EXPECT_EQ(read("model: {arch: gpt2, norm_eps: 0}").model.norm_eps, 0);
  const TrainConfig again = read(config::dump([&](config::Fields& f) { given.describe(f); }));
  EXPECT_EQ(again.model, given.model);
  error_of(Exit::kUsage, [] { read("model: {arch: gpt2, num_key_value_heads: 2}"); });
}

TEST(ModelDefaults, VocabularyOfTheTokenizer) {
  const TempFolder folder;
  EXPECT_EQ(read("").model.vocab_size, 256) << "bytes";
  tokenizer::WrittenTokenizer file = tokenizer::bytes_tokenizer_file();
  file.model.tokens.insert(file.model.tokens.begin(), "<|end|>");
  file.model.special = 1;
  file.eos = "<|end|>";
  tokenizer::write_tokenizer(folder / "tok", file);
  const std::string key = "data.tokenizer=" + (folder / "tok");
  EXPECT_EQ(read("", {key}).model.vocab_size, 257);
  EXPECT_EQ(read("model: {vocab_size: 512}", {key}).model.vocab_size, 512);
  const std::string none = error_of(Exit::kInput, [&] { read("", {"data.tokenizer=" + (folder / "none")}); });
  EXPECT_TRUE(none.starts_with("model.vocab_size: not given")) << none;
  EXPECT_EQ(read("model: {vocab_size: 512}", {"data.tokenizer=" + (folder / "none")}).model.vocab_size, 512);
  error_of(Exit::kUsage, [] { read("model: {vocab_size: 1}"); });
}

}  // namespace
}  // namespace mantissa
