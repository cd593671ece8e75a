#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "data/tokenizer/word_counter.h"
#include "tests/base/support.h"

namespace mantissa::tokenizer {
namespace {

using mantissa::testing::error_of;
using mantissa::testing::TempFolder;

std::vector<std::string> paragraphs() {
  const std::string text = read_text(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/corpus.txt");
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  return parts;
}

// Tokens that merges made, in their order.
std::vector<std::string> merged(const BpeModel& model) {
  return {model.tokens.begin() + static_cast<std::ptrdiff_t>(model.tokens.size() - model.merges.size()),
          model.tokens.end()};
}

// The tokens, merges and token count that Hugging Face's BpeTrainer has for the committed corpus
// (tests/interop/trained_tokenizer.py --write).
TEST(BpeTrainer, LearnsWhatHuggingFaceLearns) {
  const Json golden = read_json(MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/trained_by_hf.json");
  const std::vector<std::string> documents = paragraphs();
  for (const auto& [name, row] : golden.items()) {
    WordCounter counter(pattern_named(name), row["nfc"].get<bool>());
    counter.add(documents);
    const BpeModel model =
        train_bpe(counter.words(), {.vocab_size = 700, .special = row["special"].get<std::vector<std::string>>()});
    EXPECT_EQ(model.tokens, row["tokens"].get<std::vector<std::string>>()) << name;
    std::vector<std::string> merges;
    for (const auto& [left, right] : model.merges)
      merges.push_back(model.tokens[static_cast<size_t>(left)] + " " + model.tokens[static_cast<size_t>(right)]);
    EXPECT_EQ(merges, row["merges"].get<std::vector<std::string>>()) << name;
    EXPECT_EQ(model.corpus_tokens, row["corpus_tokens"].get<int64_t>()) << name;
  }
}

TEST(BpeTrainer, TakesTheMostFrequentPairThenTheSmallestIds) {
  // ab 5, bc 5, cd 7: cd first; then of ab and bcd (b, cd: 5) the one with the smaller ids.
  const BpeModel model = train_bpe({{"ab", 5}, {"bcd", 5}, {"cd", 2}}, {.vocab_size = 259, .special = {}});
  EXPECT_EQ(merged(model), (std::vector<std::string>{"cd", "ab", "bcd"}));
  EXPECT_EQ(model.corpus_tokens, 5 + 5 + 2);
}

TEST(BpeTrainer, MergesRunsFromTheLeft) {
  const BpeModel model = train_bpe({{"aaaaa", 3}, {"a", 2}}, {.vocab_size = 257, .special = {}});
  EXPECT_EQ(merged(model), (std::vector<std::string>{"aa"}));
  EXPECT_EQ(model.corpus_tokens, 3 * 3 + 2);  // aa aa a; a
}

TEST(BpeTrainer, EndsWhenNoPairIsLeft) {
  const BpeModel model = train_bpe({{"abc", 1}}, {.vocab_size = 1000, .special = {"<s>"}});
  EXPECT_EQ(model.tokens.size(), 1u + 256 + 2);
  EXPECT_EQ(merged(model), (std::vector<std::string>{"ab", "abc"}));
  EXPECT_EQ(model.tokens.front(), "<s>");
}

TEST(BpeTrainer, AMergeThatSpellsASpecialTokenIsThatToken) {
  const BpeModel model = train_bpe({{"ab", 2}, {"cd", 1}}, {.vocab_size = 258, .special = {"ab"}});
  EXPECT_EQ(model.merges.size(), 2u);
  EXPECT_EQ(model.tokens.back(), "cd");
  EXPECT_EQ(model.tokens.size(), 258u);
}

TEST(BpeTrainer, RefusesSizesAndTokens) {
  const auto refusal = [](const BpeOptions& options) {
    return error_of(Exit::kUsage, [&] { train_bpe({}, options); });
  };
  EXPECT_NE(refusal({.vocab_size = 256, .special = {"<s>"}}).find("256, expected 257"), std::string::npos);
  EXPECT_NE(refusal({.vocab_size = int64_t{1} << 40, .special = {}}).find("1099511627776"), std::string::npos);
  EXPECT_NE(refusal({.vocab_size = 300, .special = {"<s>", "<s>"}}).find("given twice"), std::string::npos);
  EXPECT_NE(refusal({.vocab_size = 300, .special = {""}}).find("empty"), std::string::npos);
}

TEST(BpeTrainer, WordsDoNotDependOnHowDocumentsAreHandedOver) {
  const std::vector<std::string> documents = paragraphs();
  WordCounter all(Pattern::kLlama3, false), each(Pattern::kLlama3, false);
  all.add(documents);
  for (const std::string& document : documents) each.add({&document, 1});
  EXPECT_EQ(all.words(), each.words());
  const std::vector<std::string> bad = {"good", "ba\xff"};
  const std::string refusal = error_of(Exit::kInput, [&] { each.add(bad); });
  EXPECT_NE(refusal.find("document 2"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("byte 2"), std::string::npos) << refusal;
}

WrittenTokenizer trained(Pattern pattern, bool nfc, std::vector<std::string> special) {
  WordCounter counter(pattern, nfc);
  counter.add(paragraphs());
  WrittenTokenizer file;
  file.pattern = pattern;
  file.nfc = nfc;
  file.eos = special.back();
  file.model = train_bpe(counter.words(), {.vocab_size = 600, .special = std::move(special)});
  return file;
}

TEST(TokenizerWriter, FilesReadBack) {
  const TempFolder folder;
  const std::vector<std::string> documents = paragraphs();
  for (const Pattern pattern : {Pattern::kGpt2, Pattern::kLlama3, Pattern::kQwen2}) {
    const WrittenTokenizer file = trained(pattern, pattern == Pattern::kQwen2, {"<|begin|>", "<|end|>"});
    write_tokenizer(folder / "t", file);
    const Tokenizer read = Tokenizer::open(folder / "t");
    EXPECT_EQ(read.vocab_size(), 600);
    EXPECT_EQ(read.eos(), 1);
    EXPECT_EQ(read.bos(), -1);
    for (size_t id = 0; id < file.model.tokens.size(); ++id)
      EXPECT_EQ(read.find(file.model.tokens[id]), static_cast<int32_t>(id));
    Tokenizer::Encoder encoder(read);
    int64_t tokens = 0;
    for (const std::string& document : documents) {
      std::vector<int32_t> ids;
      encoder.encode(document, SpecialTokens::kAdd, ids);
      tokens += static_cast<int64_t>(ids.size());
      if (!file.nfc) {
        EXPECT_EQ(read.decode(ids), document);
      }
    }
    EXPECT_EQ(tokens, file.model.corpus_tokens);
  }
}

TEST(TokenizerWriter, PutsBosInFront) {
  WrittenTokenizer file = trained(Pattern::kLlama3, false, {"<|begin|>", "<|end|>"});
  file.bos = "<|begin|>";
  file.add_bos = true;
  const Tokenizer read = Tokenizer::from_json(tokenizer_json(file), "t");
  std::vector<int32_t> with, without;
  Tokenizer::Encoder encoder(read);
  encoder.encode("some text", SpecialTokens::kAdd, with);
  encoder.encode("some text", SpecialTokens::kLeaveOut, without);
  without.insert(without.begin(), 0);
  EXPECT_EQ(with, without);
  file.bos = "<|other|>";
  EXPECT_NE(error_of(Exit::kUsage, [&] { tokenizer_config_json(file); }).find("<|other|>"), std::string::npos);
}

TEST(TokenizerWriter, BytesAreTheirOwnIds) {
  const Tokenizer read = Tokenizer::from_json(tokenizer_json(bytes_tokenizer_file()), "bytes");
  std::string text = "Ā é 🌍\r\n'll 123";
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  std::vector<int32_t> ids, bytes;
  Tokenizer::Encoder(read).encode(text, SpecialTokens::kAdd, ids);
  for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  EXPECT_EQ(ids, bytes);
  EXPECT_EQ(read.decode(ids), text);
  for (int32_t byte = 0; byte < 256; ++byte) EXPECT_EQ(read.bytes_of(byte), std::string(1, static_cast<char>(byte)));
}

}  // namespace
}  // namespace mantissa::tokenizer
