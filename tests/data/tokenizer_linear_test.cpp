// Encoding takes time in proportion to the text, whatever the text; BPE is the plain algorithm at every length.
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/byte_alphabet.h"
#include "tests/data/tokenizer_support.h"

namespace mantissa {
namespace {

using testing::encoded;
using testing::tokenizer_fixture;
using Ids = std::vector<int32_t>;

// A quadratic step would take minutes. Seconds are of the processor, per byte of text.
#if defined(__SANITIZE_ADDRESS__)
constexpr double kSecondsPerByte = 8e-6;
#else
constexpr double kSecondsPerByte = 0.5e-6;
#endif

std::string repeated(const std::string& part, size_t bytes) {
  std::string text;
  while (text.size() + part.size() <= bytes) text += part;
  return text;
}

std::map<std::string, std::string> hard_texts(size_t bytes) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, part] : std::map<std::string, std::string>{{"letters", "a"},
                                                                     {"words", "weight"},
                                                                     {"ideographs", "训练模型"},
                                                                     {"spaces", " "},
                                                                     {"wide_spaces", "\u3000"},
                                                                     {"newlines", "\n"},
                                                                     {"space_newline", " \n"},
                                                                     {"returns", "\r\n"},
                                                                     {"tabs", "\t"},
                                                                     {"digits", "7"},
                                                                     {"signs", "-"},
                                                                     {"apostrophes", "'"},
                                                                     {"contractions", "'ll"},
                                                                     {"marks", "\u0301"},
                                                                     {"marks_of_two_classes", "\u0301\u0323"},
                                                                     {"decomposed", "e\u0301"},
                                                                     {"jamo", "\u1100\u1161\u11a8"},
                                                                     {"syllables", "\uac01"},
                                                                     {"token", "<|endoftext|>"},
                                                                     {"token_begin", "<"},
                                                                     {"token_half", "<|endoftex"},
                                                                     {"stripping", "<strip> "},
                                                                     {"left", "  <left>"},
                                                                     {"emoji", "\U0001F600"}}) {
    texts[name] = repeated(part, bytes);
  }
  texts["letter_and_marks"] = "a" + repeated("\u0301", bytes);
  texts["spaces_and_letter"] = repeated(" ", bytes) + "a";
  texts["spaces_and_token"] = repeated(" ", bytes) + "<strip>";
  std::mt19937 draw(1);
  std::string& random = texts["random_letters"];
  while (random.size() < bytes) random += static_cast<char>('a' + draw() % 26);
  return texts;
}

void expect_linear(const Tokenizer& tokenizer, const std::string& tokenizer_name, size_t bytes) {
  for (const auto& [name, text] : hard_texts(bytes)) {
    const std::clock_t begin = std::clock();
    const Ids ids = encoded(tokenizer, text);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_FALSE(ids.empty());
    EXPECT_LT(seconds, kSecondsPerByte * static_cast<double>(bytes)) << tokenizer_name << ": " << name;
  }
}

constexpr size_t kSome = size_t{1} << 18, kMany = size_t{4} << 20;

TEST(TokenizerLinear, Fixtures) {
  for (const char* name : {"gpt2", "qwen", "llama"})
    expect_linear(Tokenizer::open(tokenizer_fixture(name)), name, kSome);
}

TEST(SlowTokenizerLinear, Fixtures) {
  for (const char* name : {"gpt2", "qwen", "llama"})
    expect_linear(Tokenizer::open(tokenizer_fixture(name)), name, kMany);
}

TEST(SlowTokenizerLinear, RealTokenizers) {
  if (testing::test_data().empty()) GTEST_SKIP() << "MANTISSA_TEST_DATA is not set";
  for (const char* name : {"gpt2", "qwen3", "llama3"}) {
    expect_linear(Tokenizer::open(testing::test_data() + "/tokenizers/" + name), name, kMany);
  }
}

// Added tokens that are beginnings and repetitions of one another.
TEST(TokenizerLinear, NestedAddedTokens) {
  Json json = testing::fixture_json("gpt2");
  int id = json["added_tokens"][0]["id"];
  for (const std::string& content :
       {std::string("aa"), std::string(100, 'a') + "b", std::string("a a"), std::string(1000, ' ')}) {
    Json token = json["added_tokens"][0];
    token["content"] = content;
    token["id"] = ++id;
    token["lstrip"] = token["rstrip"] = token["single_word"] = content[0] == ' ';
    json["added_tokens"].push_back(token);
  }
  expect_linear(testing::tokenizer_of(json), "nested", kSome);
}

// The definition: over and over, the leftmost pair of the lowest rank merges.
Ids plain_bpe(const tokenizer::Model& model, std::string_view piece) {
  Ids ids;
  for (const char byte : piece) ids.push_back(model.byte_ids[static_cast<uint8_t>(byte)]);
  while (true) {
    tokenizer::Merge best = {tokenizer::Merges::kNoRank, -1};
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const tokenizer::Merge merge = model.merges.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) best = merge, place = i;
    }
    if (best.id < 0) return ids;
    ids[place] = best.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

// Random vocabularies over three letters whose merges stand in random order, so that ranks say nothing about length.
TEST(TokenizerBpe, IsThePlainAlgorithm) {
  std::mt19937 draw(5);
  for (int round = 0; round < 30; ++round) {
    Json json = testing::fixture_json("gpt2");
    Json vocab = Json::object();
    for (int byte = 0; byte < 256; ++byte) {
      const char text = static_cast<char>(byte);
      vocab[tokenizer::spell({&text, 1})] = byte;
    }
    for (int token = 0; token < 60; ++token) {
      std::string text;
      for (uint32_t n = 2 + draw() % 5; n > 0; --n) text += static_cast<char>('a' + draw() % 3);
      if (!vocab.contains(text)) vocab[text] = vocab.size();
    }
    std::vector<std::string> merges;
    for (const auto& [text, id] : vocab.items()) {
      for (size_t cut = 1; cut < text.size(); ++cut) {
        if (vocab.contains(text.substr(0, cut)) && vocab.contains(text.substr(cut)) && text[0] <= 'z') {
          merges.push_back(text.substr(0, cut) + " " + text.substr(cut));
        }
      }
    }
    std::shuffle(merges.begin(), merges.end(), draw);
    json["model"]["vocab"] = vocab;
    json["model"]["merges"] = merges;
    json["added_tokens"] = Json::array();
    const tokenizer::Model model = tokenizer::build_model(json.dump(), "made-up");
    tokenizer::BpeMerger merger(model);
    for (const size_t size : {1, 2, 3, 7, 20, 63, 64, 65, 66, 100, 300, 1000}) {
      std::string piece;
      while (piece.size() < size) piece += static_cast<char>('a' + draw() % 3);
      Ids ids;
      merger.encode(piece, ids);
      ASSERT_EQ(ids, plain_bpe(model, piece)) << piece;
    }
  }
}

}  // namespace
}  // namespace mantissa
