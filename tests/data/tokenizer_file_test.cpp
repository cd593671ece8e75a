// tokenizer.json from outside: what is not known or not sound is refused by name.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>

#include "base/file.h"
#include "tests/base/support.h"
#include "tests/data/tokenizer_support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::fixture_json;
using testing::TempFolder;
using testing::tokenizer_fixture;
using testing::tokenizer_of;

Json ordered_merges(const Json& json) { return json["model"]["merges"]; }

struct BadFile {
  const char* name;
  std::function<void(Json&)> change;
  const char* message;
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.name; }

const Json kSplit = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}, {"invert", false}};

std::vector<BadFile> bad_files() {
  return {
      {"array", [](Json& j) { j = Json::array(); }, "is array, expected an object"},
      {"unknown_key", [](Json& j) { j["postprocessor"] = 1; }, "unknown key \"postprocessor\""},
      {"no_model", [](Json& j) { j.erase("model"); }, "no \"model\""},
      {"model_null", [](Json& j) { j["model"] = nullptr; }, "model: is null, expected an object"},
      {"unigram", [](Json& j) { j["model"]["type"] = "Unigram"; }, "type \"Unigram\" is not supported, expected BPE"},
      {"model_key", [](Json& j) { j["model"]["vocabulary"] = 1; }, "model: unknown key \"vocabulary\""},
      {"dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }, "model.dropout: is 0.1"},
      {"prefix", [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }, "is \"##\", expected none"},
      {"suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, "is \"</w>\", expected none"},
      {"ignore_merges", [](Json& j) { j["model"]["ignore_merges"] = 1; },
       "ignore_merges: is 1, expected true or false"},
      {"no_vocab", [](Json& j) { j["model"].erase("vocab"); }, "no \"vocab\""},
      {"vocab_list", [](Json& j) { j["model"]["vocab"] = Json::array({1}); }, "vocab: is array, expected an object"},
      {"id_text", [](Json& j) { j["model"]["vocab"]["a"] = "64"; }, "the id of \"a\" is a string"},
      {"id_float", [](Json& j) { j["model"]["vocab"]["a"] = 1.5; }, "the id of \"a\" is 1.5"},
      {"id_negative", [](Json& j) { j["model"]["vocab"]["a"] = -1; },
       "the id of \"a\" is -1, expected a number from 0"},
      {"id_large", [](Json& j) { j["model"]["vocab"]["a"] = 16777216; }, "the id of \"a\" is 16777216"},
      {"id_huge", [](Json& j) { j["model"]["vocab"]["a"] = uint64_t{1} << 63; },
       "the id of \"a\" is 9223372036854775808"},
      {"id_object", [](Json& j) { j["model"]["vocab"]["a"] = Json::object(); }, "the id of \"a\" is an object"},
      {"id_array", [](Json& j) { j["model"]["vocab"]["a"] = Json::array(); }, "the id of \"a\" is an array"},
      {"id_twice", [](Json& j) { j["model"]["vocab"]["b"] = j["model"]["vocab"]["a"]; }, "the id 64 of another token"},
      {"unk_absent",
       [](Json& j) {
         j["model"]["vocab"].erase("A");
         j["model"]["unk_token"] = "<none>";
       },
       "unk_token: \"<none>\" is not in the vocabulary, which has no token for the byte 0x41"},
      {"unk_type", [](Json& j) { j["model"]["unk_token"] = 3; }, "unk_token: is 3, expected a token or null"},
      {"fuse_type", [](Json& j) { j["model"]["fuse_unk"] = 3; }, "fuse_unk: is 3, expected true or false"},
      {"fallback_type", [](Json& j) { j["model"]["byte_fallback"] = "x"; }, "byte_fallback: is \"x\", expected true"},
      {"merges_object", [](Json& j) { j["model"]["merges"] = Json::object(); }, "merges: is object, expected an array"},
      {"merge_one", [](Json& j) { j["model"]["merges"][3] = "ab"; }, "entry 3 is \"ab\", expected \"left right\""},
      {"merge_three", [](Json& j) { j["model"]["merges"][3] = "a b c"; }, "entry 3 is \"a b c\""},
      {"merge_number", [](Json& j) { j["model"]["merges"][3] = 7; }, "entry 3 is a number"},
      {"merge_pair_one", [](Json& j) { j["model"]["merges"][3] = {"a"}; }, "entry 4 is 1 strings"},
      {"merge_pair_none", [](Json& j) { j["model"]["merges"][3] = Json::array(); }, "entry 3 is 0 strings"},
      {"merge_pair_three",
       [](Json& j) {
         j["model"]["merges"][3] = {"a", "b", "c"};
       },
       "is more than 2 strings"},
      {"merge_deep",
       [](Json& j) {
         j["model"]["merges"][3] = {{"a"}, {"b"}};
       },
       "entry 3 is an array in an array"},
      {"merge_unknown", [](Json& j) { j["model"]["merges"][3] = "a zzz"; },
       "merges[3]: \"zzz\" is not in the vocabulary"},
      {"merge_result", [](Json& j) { j["model"]["merges"][3] = "A A"; },
       "\"A\" and \"A\" make no token of the vocabulary"},
      {"merge_empty", [](Json& j) { j["model"]["merges"][3] = " a"; }, "merges[3]: \"\" is not in the vocabulary"},
      {"added_object", [](Json& j) { j["added_tokens"] = Json::object(); },
       "added_tokens: is object, expected an array"},
      {"added_number", [](Json& j) { j["added_tokens"] = {1}; }, "added_tokens[0]: is number, expected an object"},
      {"added_key", [](Json& j) { j["added_tokens"][0]["strip"] = true; }, "added_tokens[0]: unknown key \"strip\""},
      {"added_flag", [](Json& j) { j["added_tokens"][0].erase("lstrip"); }, "added_tokens[0]: no \"lstrip\""},
      {"added_flag_type", [](Json& j) { j["added_tokens"][0]["lstrip"] = 0; }, "lstrip: is 0, expected true or false"},
      {"added_empty", [](Json& j) { j["added_tokens"][0]["content"] = ""; }, "content: is 0 bytes, expected 1 to 1024"},
      {"added_long", [](Json& j) { j["added_tokens"][0]["content"] = std::string(1025, 'x'); },
       "content: is 1025 bytes"},
      {"added_id", [](Json& j) { j["added_tokens"][0]["id"] = 3; }, "has the id 3, expected"},
      {"added_id_type", [](Json& j) { j["added_tokens"][0]["id"] = "3"; }, "id: is \"3\", expected a number"},
      {"added_gap",
       [](Json& j) {
         j["added_tokens"][1] = j["added_tokens"][0];
         j["added_tokens"][1]["content"] = "<gap>";
         j["added_tokens"][1]["id"] = 5000;
       },
       "added_tokens[1]: \"<gap>\" has the id 5000, expected"},
      {"added_twice", [](Json& j) { j["added_tokens"][1] = j["added_tokens"][0]; }, "\"<|endoftext|>\" stands twice"},
      {"normalizer",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       },
       "normalizer: NFKC is not supported"},
      {"normalizer_list", [](Json& j) { j["normalizer"] = Json::array(); }, "normalizer: is array, expected an object"},
      {"pre_none", [](Json& j) { j.erase("pre_tokenizer"); }, "no \"pre_tokenizer\""},
      {"pre_null", [](Json& j) { j["pre_tokenizer"] = nullptr; }, "pre_tokenizer: is null"},
      {"pre_type",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       "pre_tokenizer: Whitespace is not supported"},
      {"pre_no_regex", [](Json& j) { j["pre_tokenizer"]["use_regex"] = false; }, "use_regex = false and no Split"},
      {"pre_key", [](Json& j) { j["pre_tokenizer"]["prepend"] = "x"; }, "pre_tokenizer: unknown key \"prepend\""},
      {"pre_short",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({kSplit})}};
       },
       "is a Sequence of 1 parts"},
      {"pre_regex",
       [](Json& j) {
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({kSplit, j["pre_tokenizer"]})}};
       },
       "pre_tokenizer[0]: the pattern \\w+ is not supported"},
      {"pre_behavior",
       [](Json& j) {
         Json split = kSplit;
         split["behavior"] = "Removed";
         j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({split, j["pre_tokenizer"]})}};
       },
       "behavior Removed is not supported"},
      {"post_type",
       [](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       "post_processor: BertProcessing is not"},
      {"post_nested",
       [](Json& j) {
         j["post_processor"] = {{"type", "Sequence"},
                                {"processors", Json::array({{{"type", "Sequence"}, {"processors", Json::array()}}})}};
       },
       "post_processor[0]: Sequence is not supported"},
      {"template_id",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                                        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
                                {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {99999}}, {"tokens", {"<s>"}}}}}}};
       },
       "special_tokens.<s>: id 99999 is not a token"},
      {"template_token",
       [](Json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", Json::array({{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}})},
                                {"special_tokens", Json::object()}};
       },
       "no \"<s>\""},
      {"template_none",
       [](Json& j) {
         j["post_processor"] = {
             {"type", "TemplateProcessing"}, {"single", Json::array()}, {"special_tokens", Json::object()}};
       },
       "single: names 0 sequences, expected 1"},
      {"decoder",
       [](Json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       "decoder: WordPiece is not supported"},
      {"decoder_null", [](Json& j) { j["decoder"] = nullptr; }, "decoder: is null, expected ByteLevel"},
  };
}

class TokenizerFileRefuses : public ::testing::TestWithParam<BadFile> {};

TEST_P(TokenizerFileRefuses, ByName) {
  Json json = fixture_json("gpt2");
  GetParam().change(json);
  const std::string message = error_of(Exit::kInput, [&] { tokenizer_of(json, "bad.json"); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("bad.json: ")) << message;
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerFileRefuses, ::testing::ValuesIn(bad_files()),
                         [](const auto& parameter) { return parameter.param.name; });

std::string refused(const std::string& json) {
  return error_of(Exit::kInput, [&] { Tokenizer::from_json(json, "bad.json"); });
}

TEST(TokenizerFile, WhatIsNotJsonIsRefused) {
  EXPECT_EQ(refused("").substr(0, 32), "bad.json: not JSON at byte 1: sy");
  EXPECT_NE(refused("{\"model\":{\"vocab\":{\"a\":1").find("not JSON at byte"), std::string::npos);
  EXPECT_NE(refused("{} {}").find("not JSON at byte"), std::string::npos);
  EXPECT_NE(refused("{\"a\":1,\"a\":2}").find("key \"a\" stands twice in one object"), std::string::npos);
  EXPECT_NE(refused("{\"model\":{},\"model\":{}}").find("key \"model\" stands twice"), std::string::npos);
  EXPECT_NE(refused("{\"model\":{\"vocab\":{\"\xff\":1}}}").find("not JSON at byte"), std::string::npos);
  EXPECT_NE(refused("{\"model\":{\"vocab\":{\"a\":1,\"a\":2}}}").find("model: no \"merges\""), std::string::npos);
  EXPECT_NE(refused("{\"model\":{\"merges\":[],\"vocab\":{\"a\":1,\"a\":2}}}").find("model.vocab: \"a\" stands twice"),
            std::string::npos);
  for (const char* deep : {"[", "{\"a\":", "{\"model\":[["}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += deep;
    EXPECT_NE(refused(text).find("nested more than 64 deep"), std::string::npos);
  }
}

TEST(TokenizerFile, SizesAreBounded) {
  EXPECT_NE(refused(std::string(100'000'001, ' ')).find("is 100000001 bytes, expected at most 100000000"),
            std::string::npos);
  std::string many = "[";
  for (int i = 0; i < 2'500'000; ++i) many += "1,";
  EXPECT_NE(refused(many).find("more than 2000000 values outside of vocabulary and merges"), std::string::npos);
  Json json = fixture_json("gpt2");
  int id = json["added_tokens"][0]["id"];
  for (int i = 0; i < 1100; ++i) {
    Json token = json["added_tokens"][0];
    token["content"] = std::to_string(i) + std::string(1000, '<');
    token["id"] = ++id;
    json["added_tokens"].push_back(token);
  }
  const std::string message = error_of(Exit::kInput, [&] { tokenizer_of(json, "bad.json"); });
  EXPECT_NE(message.find("the added tokens are more than 1048576 bytes long"), std::string::npos) << message;
}

TEST(TokenizerFile, FoldersNameWhatIsMissing) {
  TempFolder folder;
  EXPECT_NE(error_of(Exit::kInput, [&] { Tokenizer::open(folder / "none"); }).find("none"), std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { Tokenizer::open(folder.path()); }).find("no tokenizer.json"),
            std::string::npos);
  write_atomic(folder / "tokenizer.model", "x");
  EXPECT_NE(error_of(Exit::kInput, [&] { Tokenizer::open(folder.path()); }).find("tokenizer.model is not read"),
            std::string::npos);
  write_atomic(folder / "tokenizer.json", read_text(tokenizer_fixture("gpt2") + "/tokenizer.json"));
  EXPECT_EQ(Tokenizer::open(folder.path()).eos(), -1);
  const struct {
    const char *config, *message;
  } rows[] = {{"[]", "is array, expected an object"},
              {R"({"eos_token": 3})", "eos_token is 3, expected a token or null"},
              {R"({"eos_token": {}})", "eos_token: no \"content\""},
              {R"({"pad_token": "<pad>"})", "pad_token \"<pad>\" is no token of tokenizer.json"}};
  for (const auto& row : rows) {
    write_atomic(folder / "tokenizer_config.json", row.config);
    const std::string message = error_of(Exit::kInput, [&] { Tokenizer::open(folder.path()); });
    EXPECT_NE(message.find(row.message), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer_config.json"), std::string::npos) << message;
  }
}

TEST(TokenizerFile, MergesAreStringsOrPairs) {
  Json pairs = fixture_json("qwen"), strings = pairs;
  for (Json& merge : strings["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  strings["model"]["merges"].insert(strings["model"]["merges"].begin(), "#version: 0.2");
  ASSERT_TRUE(ordered_merges(pairs)[0].is_array());
  const std::string text = "every weight of the block is measured again, Maßstab 每一步训练";
  EXPECT_EQ(testing::encoded(tokenizer_of(strings), text), testing::encoded(tokenizer_of(pairs), text));
  // The order of the keys does not matter: merges may stand before the vocabulary.
  std::string turned = R"({"model":{"merges":)" + pairs["model"]["merges"].dump() + R"(,"vocab":)" +
                       pairs["model"]["vocab"].dump() + R"(,"type":"BPE"})";
  pairs.erase("model");
  turned += "," + pairs.dump().substr(1);
  EXPECT_EQ(testing::encoded(Tokenizer::from_json(turned, "turned"), text),
            testing::encoded(tokenizer_of(strings), text));
}

TEST(TokenizerFile, AddPrefixSpaceIsForEveryPiece) {
  Json json = fixture_json("gpt2");
  const Tokenizer plain = tokenizer_of(json);
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer prefixed = tokenizer_of(json);
  EXPECT_EQ(testing::encoded(prefixed, "the scale<|endoftext|>the block"),
            testing::encoded(plain, " the scale<|endoftext|> the block"));
  EXPECT_EQ(testing::encoded(prefixed, " the\nscale"), testing::encoded(plain, " the\nscale"));
  EXPECT_TRUE(testing::encoded(prefixed, "").empty());
}

// A damaged file is refused or read; it never crashes, and takes no time.
TEST(TokenizerFile, DamagedFilesAreRefusedOrRead) {
  for (const char* name : {"llama", "unknown"}) {
    const std::string good = fixture_json(name).dump();
    int refusals = 0;
    for (uint32_t seed = 0; seed < 300; ++seed) {
      const std::string bad = testing::mutated(good, seed);
      try {
        const Tokenizer tokenizer = Tokenizer::from_json(bad, "bad.json");
        testing::encoded(tokenizer, "the scale-9 of a <|begin|> block\u00df\u0301\u00df");
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Exit::kInput) << error.what();
        ++refusals;
      }
    }
    EXPECT_GT(refusals, 150) << name;
  }
}

}  // namespace
}  // namespace mantissa
