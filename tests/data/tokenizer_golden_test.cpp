// Ids and texts as Hugging Face `tokenizers` gives them (tests/fixtures/tokenizers/make_fixtures.py), and what the
// interface promises beside them.
#include <gtest/gtest.h>

#include <random>

#include "base/sha256.h"
#include "tests/base/support.h"
#include "tests/data/tokenizer_support.h"

namespace mantissa {
namespace {

using testing::encoded;
using testing::error_of;
using testing::fixture_json;
using testing::tokenizer_fixture;
using Ids = std::vector<int32_t>;

class TokenizerGolden : public ::testing::TestWithParam<std::string> {
 protected:
  const Tokenizer tokenizer_ = Tokenizer::open(tokenizer_fixture(GetParam()));
  const Json golden_ = read_json(tokenizer_fixture("golden.json"))[GetParam()];
};

TEST_P(TokenizerGolden, TextsHaveTheirIds) {
  ASSERT_GT(golden_["texts"].size(), 80u);
  Tokenizer::Encoder encoder(tokenizer_);
  for (int round = 0; round < 2; ++round) {  // the second one finds its words in the cache
    for (const Json& row : golden_["texts"]) {
      const std::string text = row["text"];
      Ids ids;
      encoder.encode(text, SpecialTokens::kLeaveOut, ids);
      EXPECT_EQ(ids, row["ids"].get<Ids>()) << row["text"];
      Ids expected = row["before"].get<Ids>();
      expected.insert(expected.end(), ids.begin(), ids.end());
      ids.clear();
      encoder.encode(text, SpecialTokens::kAdd, ids);
      EXPECT_EQ(ids, expected) << row["text"];
    }
  }
}

TEST_P(TokenizerGolden, IdsDecode) {
  for (const Json& row : golden_["texts"]) {
    Ids ids = row["before"].get<Ids>();
    for (const Json& id : row["ids"]) ids.push_back(id);
    EXPECT_EQ(tokenizer_.decode(ids), row["decoded"].get<std::string>()) << row["text"];
    EXPECT_EQ(tokenizer_.decode(ids, true), row["plain"].get<std::string>()) << row["text"];
  }
  ASSERT_GT(golden_["decodes"].size(), 100u);
  for (const Json& row : golden_["decodes"]) {  // cut within characters
    EXPECT_EQ(tokenizer_.decode(row["ids"].get<Ids>()), row["decoded"].get<std::string>()) << row["ids"];
  }
}

TEST_P(TokenizerGolden, EveryTokenIsFoundAgain) {
  const Json file = fixture_json(GetParam());
  for (const auto& [token, id] : file["model"]["vocab"].items()) {
    EXPECT_EQ(tokenizer_.find(token), id.get<int32_t>()) << token;
    EXPECT_TRUE(tokenizer_.known(id));
  }
  int64_t size = static_cast<int64_t>(file["model"]["vocab"].size());
  for (const Json& token : file["added_tokens"]) {
    EXPECT_EQ(tokenizer_.find(token["content"].get<std::string>()), token["id"].get<int32_t>());
    EXPECT_EQ(tokenizer_.special(token["id"]), token["special"].get<bool>());
    size = std::max(size, token["id"].get<int64_t>() + 1);
  }
  EXPECT_EQ(tokenizer_.vocab_size(), size);
  EXPECT_FALSE(tokenizer_.known(static_cast<int32_t>(size)));
  EXPECT_FALSE(tokenizer_.known(-1));
  EXPECT_EQ(tokenizer_.find("no such token"), -1);
  EXPECT_EQ(tokenizer_.find("\xff"), -1);
  const std::string message = error_of(Exit::kInput, [&] { tokenizer_.bytes_of(static_cast<int32_t>(size)); });
  EXPECT_NE(message.find("no token has the id " + std::to_string(size)), std::string::npos) << message;
}

TEST_P(TokenizerGolden, AFailedEncodeLeavesTheIds) {
  Tokenizer::Encoder encoder(tokenizer_);
  Ids ids = {7};
  for (const std::string bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
    const std::string message =
        error_of(Exit::kInput, [&] { encoder.encode("0123456789abcdef01234" + bad + "x", SpecialTokens::kAdd, ids); });
    EXPECT_NE(message.find("byte 21 ("), std::string::npos) << message;
  }
  EXPECT_EQ(ids, Ids{7});
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerGolden, ::testing::Values("gpt2", "qwen", "llama", "sparse", "unknown"),
                         [](const auto& parameter) { return parameter.param; });

TEST(Tokenizer, OpensFoldersAndFiles) {
  const std::string folder = tokenizer_fixture("gpt2"), path = folder + "/tokenizer.json";
  const Tokenizer by_folder = Tokenizer::open(folder), by_file = Tokenizer::open(path);
  for (const Tokenizer* tokenizer : {&by_folder, &by_file}) {
    EXPECT_EQ(tokenizer->folder(), folder);
    EXPECT_EQ(tokenizer->sha256(), sha256(read_text(path)));
    EXPECT_EQ(tokenizer->bos(), tokenizer->find("<|endoftext|>"));
    EXPECT_EQ(tokenizer->eos(), tokenizer->find("<|endoftext|>"));
    EXPECT_EQ(tokenizer->pad(), -1);
    EXPECT_FALSE(tokenizer->is_bytes());
  }
  EXPECT_EQ(by_folder.name(), folder);
  EXPECT_EQ(by_file.name(), path);
}

TEST(Tokenizer, BytesAreIds) {
  const Tokenizer tokenizer = Tokenizer::open("bytes");
  EXPECT_TRUE(tokenizer.is_bytes());
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.eos(), 0);
  EXPECT_EQ(tokenizer.bos(), -1);
  EXPECT_EQ(tokenizer.pad(), -1);
  EXPECT_EQ(tokenizer.folder(), "");
  EXPECT_EQ(tokenizer.sha256(), "");
  std::string all;
  Ids expected;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
    expected.push_back(byte);
    EXPECT_EQ(tokenizer.bytes_of(byte), all.substr(static_cast<size_t>(byte)));
  }
  EXPECT_EQ(encoded(tokenizer, all, SpecialTokens::kAdd), expected);
  EXPECT_EQ(tokenizer.decode(Ids{'a', 0xC3, 0xA9, 0xC3, 'b', 256}),
            "a\xC3\xA9\xEF\xBF\xBD"
            "b");
}

// Without a normalizer and stripping tokens, what was encoded comes back.
TEST(Tokenizer, RandomTextComesBack) {
  std::mt19937 draw(3);
  const std::vector<std::string> parts = {
      "a",         "weight",     " ",   "  ",    "\n",     "\r\n",       "'s",
      "12345",     "\t",         "é",   "训练",  "\u0301", "\U0001F600", "\u00a0",
      "{};",       "Привет",     "-",   "<|end", "'LL",    "\u017f",     "<|endoftext|>",
      "<|begin|>", "\U0010FFFF", "\x01"};
  for (const char* name : {"gpt2", "llama"}) {
    const Tokenizer tokenizer = Tokenizer::open(tokenizer_fixture(name));
    Tokenizer::Encoder encoder(tokenizer);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (uint32_t n = draw() % 30; n > 0; --n) text += parts[draw() % parts.size()];
      Ids ids;
      encoder.encode(text, SpecialTokens::kLeaveOut, ids);
      ASSERT_EQ(tokenizer.decode(ids), text);
      if (round % 20 != 0) continue;
      Ids cold;
      Tokenizer::Encoder(tokenizer).encode(text, SpecialTokens::kLeaveOut, cold);
      ASSERT_EQ(ids, cold) << text;
    }
  }
}

TEST(Tokenizer, SaysWhatStandsForBytesWithoutAToken) {
  EXPECT_EQ(Tokenizer::open(tokenizer_fixture("gpt2")).unspelled(), "");
  EXPECT_EQ(Tokenizer::bytes().unspelled(), "");
  EXPECT_EQ(Tokenizer::open(tokenizer_fixture("sparse")).unspelled(),
            "13 bytes have no token and are left out of the text");
  EXPECT_EQ(Tokenizer::open(tokenizer_fixture("unknown")).unspelled(),
            "13 bytes have no token and become <unk>, but for 1 that have tokens of byte_fallback");
}

// Words that are in the cache, longer ones and those of more than 64 bytes take the same way.
TEST(Tokenizer, LeavesOutBytesWithoutATokenAtEveryLength) {
  const Tokenizer tokenizer = Tokenizer::open(tokenizer_fixture("sparse"));
  Tokenizer::Encoder encoder(tokenizer);
  for (const size_t size : {1, 2, 15, 16, 47, 48, 63, 64, 65, 300}) {
    const std::string word(size, 'a');
    const Ids plain = encoded(tokenizer, word);
    for (size_t at = 0; at <= size; at += 1 + size / 9) {
      // U+00DF is C3 9F, two bytes without a token.
      const std::string text = word.substr(0, at) + "\u00df" + word.substr(at);
      for (int round = 0; round < 2; ++round) {
        Ids ids;
        encoder.encode(text, SpecialTokens::kLeaveOut, ids);
        EXPECT_EQ(ids, plain) << text;
      }
    }
  }
  EXPECT_TRUE(encoded(tokenizer, "\u00df\u00df\u00df").empty());
}

}  // namespace
}  // namespace mantissa
