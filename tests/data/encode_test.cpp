#include "data/encode.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

const std::string kFixtures = MANTISSA_SOURCE_DIR "/tests/fixtures/tokenizers/";

// An encoder over one tokenizer, and what became of its records.
struct Desk {
  Desk(const DataConfig& config, const std::string& name)
      : tokenizer(Tokenizer::open(name)), scratch(tokenizer), encoder(config, tokenizer) {}

  bool run(const Record& record) { return encoder.encode(scratch, record, document, counts); }

  std::vector<int32_t> ids(std::string_view text) {
    std::vector<int32_t> out;
    scratch.encode(text, SpecialTokens::kLeaveOut, out);
    return out;
  }
  std::string text() const { return tokenizer.decode(document.ids); }
  std::string learned() const {
    std::vector<int32_t> kept;
    for (size_t i = 0; i < document.ids.size(); ++i)
      if (document.learned[i] == 1) kept.push_back(document.ids[i]);
    return tokenizer.decode(kept);
  }

  Tokenizer tokenizer;
  Tokenizer::Encoder scratch;
  DocumentEncoder encoder;
  EncodedDocument document;
  EncodeCounts counts;
};

Record texts(std::vector<std::string> texts) {
  Record record;
  record.texts = std::move(texts);
  record.where = "set.jsonl:7";
  return record;
}

Record talk(std::vector<Turn> turns) {
  Record record;
  record.turns = std::move(turns);
  record.where = "set.jsonl:7";
  return record;
}

DataConfig pairs() {
  DataConfig config;
  config.prompt_key = "question";
  config.response_key = "answer";
  return config;
}

DataConfig talks(const std::string& chat_template) {
  DataConfig config;
  config.messages_key = "messages";
  config.chat_template = chat_template;
  return config;
}

// kFixtures + "chatml": <|endoftext|> (EOS), <|im_start|>, <|im_end|>, no BOS.
// kFixtures + "llama3": <|begin_of_text|> (BOS, put in front), <|end_of_text|> (EOS), header and turn tokens.

TEST(Encode, TextTakesBosAndEos) {
  Desk desk({}, kFixtures + "llama3");
  ASSERT_TRUE(desk.run(texts({"scale before a cast"})));
  EXPECT_EQ(desk.text(), "<|begin_of_text|>scale before a cast<|end_of_text|>");
  EXPECT_EQ(desk.document.ids.size(), desk.ids("scale before a cast").size() + 2);
  EXPECT_TRUE(desk.document.learned.empty());
  EXPECT_EQ(desk.encoder.eos_origin(), "tokenizer");
  EXPECT_EQ(desk.counts.documents, 1);
  EXPECT_EQ(desk.counts.text_bytes, 19);
  EXPECT_EQ(desk.counts.tokens, static_cast<int64_t>(desk.document.ids.size()));
  EXPECT_EQ(desk.counts.learned_tokens, desk.counts.tokens);

  DataConfig bare;
  bare.add_special_tokens = bare.append_eos = false;
  Desk plain(bare, kFixtures + "llama3");
  ASSERT_TRUE(plain.run(texts({"scale before a cast"})));
  EXPECT_EQ(plain.document.ids, desk.ids("scale before a cast"));
  EXPECT_EQ(plain.encoder.eos(), -1);
}

TEST(Encode, BytesEndWithByteZero) {
  Desk desk({}, "bytes");
  ASSERT_TRUE(desk.run(texts({"ab"})));
  EXPECT_EQ(desk.document.ids, (std::vector<int32_t>{'a', 'b', 0}));
  EXPECT_EQ(desk.encoder.eos_origin(), "bytes");
  const std::string refusal = error_of(Exit::kInput, [&] { desk.run(texts({std::string("a\0b", 3)})); });
  EXPECT_EQ(refusal.rfind("set.jsonl:7: holds a byte 0 (byte 1", 0), 0u) << refusal;
}

TEST(Encode, EosIsTheKeysThenTheModelsThenTheTokenizers) {
  const TempFolder folder;
  const auto eos = [&](const std::string& key, const std::string& config_json) {
    DataConfig config;
    config.eos_token = key;
    if (!config_json.empty()) {
      write_atomic(folder / "config.json", config_json);
      config.model_folder = folder.path();
    }
    const Tokenizer tokenizer = Tokenizer::open(kFixtures + "chatml");
    const DocumentEncoder encoder(config, tokenizer);
    return std::pair(encoder.eos(), encoder.eos_origin());
  };
  const std::string path = folder / "config.json";
  EXPECT_EQ(eos("", ""), std::pair(0, std::string("tokenizer")));
  EXPECT_EQ(eos("", R"({"eos_token_id": 2})"), std::pair(2, path));
  EXPECT_EQ(eos("", R"({"eos_token_id": [1, 2]})"), std::pair(1, path));
  EXPECT_EQ(eos("", R"({"eos_token_id": null})"), std::pair(0, std::string("tokenizer")));
  EXPECT_EQ(eos("<|im_end|>", R"({"eos_token_id": 1})"), std::pair(2, std::string("data.eos_token")));
  EXPECT_NE(error_of(Exit::kUsage, [&] { eos("<|none|>", ""); }).find("data.eos_token: '<|none|>'"), std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { eos("", R"({"eos_token_id": 99999})"); }).find("99999"), std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { eos("", R"({"eos_token_id": "2"})"); }).find("\"2\""), std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { eos("", R"({"eos_token_id": -1})"); }).find("-1"), std::string::npos);
  EXPECT_NE(error_of(Exit::kInput, [&] { eos("", R"({"eos_token_id": 4294967296})"); }).find("4294967296"),
            std::string::npos);
}

TEST(Encode, PromptAndResponseAreTokenisedApart) {
  for (const char* name : {"chatml", "llama3"}) {
    const bool bos = std::string(name) == "llama3";
    DataConfig config = pairs();
    config.prompt_suffix = " ";
    Desk desk(config, kFixtures + name);
    EXPECT_EQ(desk.encoder.columns().columns, (std::vector<std::string>{"question", "answer"}));
    ASSERT_TRUE(desk.run(texts({"What is the", "loss?"})));
    std::vector<int32_t> expected = desk.ids("What is the ");
    if (bos) expected.insert(expected.begin(), desk.tokenizer.bos());
    const size_t prompt = expected.size();
    for (const int32_t id : desk.ids("loss?")) expected.push_back(id);
    expected.push_back(desk.tokenizer.eos());
    EXPECT_EQ(desk.document.ids, expected);
    // Told together, "the loss" joins the space to the word.
    EXPECT_NE(expected.size(), desk.ids("What is the loss?").size() + (bos ? 2 : 1));
    std::vector<uint8_t> learned(expected.size(), 1);
    std::fill(learned.begin(), learned.begin() + static_cast<std::ptrdiff_t>(prompt), 0);
    EXPECT_EQ(desk.document.learned, learned);
    EXPECT_EQ(desk.counts.learned_tokens, static_cast<int64_t>(expected.size() - prompt));
    EXPECT_EQ(desk.counts.tokens, static_cast<int64_t>(expected.size()));
  }
}

TEST(Encode, BosStandsOnce) {
  Desk desk(pairs(), kFixtures + "llama3");
  ASSERT_TRUE(desk.run(texts({"<|begin_of_text|>q", "a"})));
  EXPECT_EQ(desk.text(), "<|begin_of_text|>q\na<|end_of_text|>");
  EXPECT_EQ(desk.learned(), "a<|end_of_text|>");
  Desk chat(talks("llama3"), kFixtures + "llama3");
  ASSERT_TRUE(chat.run(talk({{"user", "q"}, {"assistant", "a"}})));
  EXPECT_EQ(chat.text(),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\na<|eot_id|>");
  EXPECT_EQ(std::count(chat.document.ids.begin(), chat.document.ids.end(), chat.tokenizer.bos()), 1);
}

TEST(Encode, ATemplateWithoutBosTakesTheTokenizers) {
  // A Llama vocabulary that has ChatML's tokens too.
  Json root = parse_json(read_text(kFixtures + "llama3/tokenizer.json"), "tokenizer.json");
  int64_t id = static_cast<int64_t>(root["model"]["vocab"].size());
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    Json added = root["added_tokens"][0];
    added["id"] = id++;
    added["content"] = token;
    root["added_tokens"].push_back(added);
  }
  const Tokenizer tokenizer = Tokenizer::from_json(root.dump(), "both");
  Tokenizer::Encoder scratch(tokenizer);
  EncodedDocument document;
  EncodeCounts counts;
  const DocumentEncoder encoder(talks("chatml"), tokenizer);
  ASSERT_TRUE(encoder.encode(scratch, talk({{"user", "q"}, {"assistant", "a"}}), document, counts));
  EXPECT_EQ(tokenizer.decode(document.ids),
            "<|begin_of_text|><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n");
  EXPECT_EQ(document.learned.size(), document.ids.size());
  EXPECT_EQ(document.learned.front(), 0);
}

TEST(Encode, EveryAnswerAndItsEndAreLearned) {
  Desk desk(talks("chatml"), kFixtures + "chatml");
  EXPECT_EQ(desk.encoder.columns().messages, "messages");
  EXPECT_EQ(desk.encoder.eos(), -1);
  ASSERT_TRUE(desk.run(
      talk({{"system", "rules"}, {"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}, {"assistant", "the answer"}})));
  EXPECT_EQ(desk.text(),
            "<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n");
  EXPECT_EQ(desk.learned(), "a1<|im_end|>the answer<|im_end|>");
}

TEST(Encode, SystemPromptAndPairsUnderATemplate) {
  DataConfig config = pairs();
  config.chat_template = "chatml";
  config.system_prompt = "You add.";
  Desk desk(config, kFixtures + "chatml");
  ASSERT_TRUE(desk.run(texts({"1 + 1?", "2"})));
  EXPECT_EQ(desk.text(),
            "<|im_start|>system\nYou add.<|im_end|>\n<|im_start|>user\n1 + 1?<|im_end|>\n<|im_start|>assistant\n"
            "2<|im_end|>\n");
  EXPECT_EQ(desk.learned(), "2<|im_end|>");
  DataConfig messages = talks("chatml");
  messages.system_prompt = "default";
  Desk own(messages, kFixtures + "chatml");
  ASSERT_TRUE(own.run(talk({{"system", "own"}, {"user", "q"}, {"assistant", "a"}})));
  EXPECT_EQ(own.text().find("default"), std::string::npos);
}

// A prompt and a response that are lists of messages.
TEST(Encode, PromptAndResponseMayBeConversations) {
  DataConfig config = pairs();
  config.chat_template = "chatml";
  Desk desk(config, kFixtures + "chatml");
  Record record = talk({{"user", "q1", true}, {"assistant", "a1", true}, {"user", "q2", true}, {"assistant", "a2"}});
  record.texts = {"", ""};
  ASSERT_TRUE(desk.run(record));
  EXPECT_EQ(desk.text(),
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\nq2<|im_end|>\n"
            "<|im_start|>assistant\na2<|im_end|>\n");
  EXPECT_EQ(desk.learned(), "a2<|im_end|>");
  record.turns.pop_back();  // nothing is answered
  EXPECT_FALSE(desk.run(record));
  EXPECT_EQ(desk.counts.empty, 1);
  Desk plain(pairs(), "bytes");
  EXPECT_EQ(
      error_of(Exit::kUsage, [&] { plain.run(record); }),
      "set.jsonl:7: \"question\" and \"answer\" are lists of messages: they need data.chat_template, auto, chatml, "
      "llama3 or qwen3");
}

TEST(Encode, WhatDoesNotFitIsCutOrLeftOutAndCounted) {
  DataConfig config = pairs();
  config.sequence_length = 8;
  config.prompt_suffix = "";
  Desk desk(config, "bytes");
  ASSERT_TRUE(desk.run(texts({"1234", "567"})));  // 8 with EOS
  EXPECT_EQ(desk.counts.truncated, 0);
  ASSERT_TRUE(desk.run(texts({"1234567", "8abc"})));
  EXPECT_EQ(desk.document.ids.size(), 8u);
  EXPECT_EQ(desk.learned(), "8");
  EXPECT_EQ(desk.counts.truncated, 1);
  EXPECT_EQ(desk.counts.truncated_tokens, 4);
  EXPECT_FALSE(desk.run(texts({"12345678", "9"})));
  EXPECT_EQ(desk.counts.without_response, 1);
  EXPECT_EQ(desk.counts.documents, 2);
  EXPECT_EQ(desk.counts.tokens, 16);
  EXPECT_EQ(desk.counts.learned_tokens, 4 + 1);
  EXPECT_EQ(desk.counts.text_bytes, 7 + 11);
}

TEST(Encode, AResponseWithoutAPromptBeginsTheRow) {
  DataConfig config = pairs();
  config.prompt_suffix = "";
  config.append_eos = false;
  Desk desk(config, "bytes");
  EXPECT_TRUE(desk.run(texts({"", "ab"})));
  // One token that begins the row is nobody's label.
  EXPECT_FALSE(desk.run(texts({"", "a"})));
  EXPECT_EQ(desk.counts.without_response, 1);
}

TEST(Encode, EmptyAndShortRecordsAreLeftOut) {
  Desk text({}, "bytes");
  EXPECT_FALSE(text.run(texts({""})));
  EXPECT_EQ(text.counts.empty, 1);
  DataConfig config = pairs();
  config.min_document_bytes = 5;
  Desk desk(config, "bytes");
  EXPECT_FALSE(desk.run(texts({"a prompt", ""})));
  EXPECT_FALSE(desk.run(texts({"1", "2"})));
  EXPECT_EQ(desk.counts.empty, 1);
  EXPECT_EQ(desk.counts.short_ones, 1);
  Desk chat(talks("chatml"), kFixtures + "chatml");
  EXPECT_FALSE(chat.run(talk({})));
  EXPECT_FALSE(chat.run(talk({{"user", "q"}})));
  EXPECT_FALSE(chat.run(talk({{"user", "q"}, {"assistant", ""}})));
  EXPECT_EQ(chat.counts.empty, 3);
  EncodeCounts sum = desk.counts;
  sum += chat.counts;
  EXPECT_EQ(sum.empty, 4);
  EXPECT_EQ(sum.short_ones, 1);
}

TEST(Encode, RefusesWhatContradictsItself) {
  const auto refusal = [](const std::string& tokenizer_name, const std::function<void(DataConfig&)>& change) {
    DataConfig config;
    change(config);
    const Tokenizer tokenizer = Tokenizer::open(tokenizer_name);
    return error_of(Exit::kUsage, [&] { DocumentEncoder(config, tokenizer); });
  };
  const struct {
    std::string tokenizer;
    std::function<void(DataConfig&)> change;
    std::string begins;
  } rows[] = {
      {"bytes", [](DataConfig& c) { c.prompt_key = "p"; }, "data.prompt_key: needs"},
      {"bytes", [](DataConfig& c) { c.response_key = "r"; }, "data.response_key: needs"},
      {"bytes", [](DataConfig& c) { c.messages_key = "m"; }, "data.messages_key: needs"},
      {"bytes", [](DataConfig& c) { c = pairs(), c.messages_key = "m"; }, "data.messages_key: excludes"},
      {"bytes", [](DataConfig& c) { c.chat_template = "chatml"; }, "data.chat_template: needs"},
      {"bytes", [](DataConfig& c) { c = pairs(), c.system_prompt = "s"; }, "data.system_prompt: needs"},
      {"bytes", [](DataConfig& c) { c.prompt_suffix = " "; }, "data.prompt_suffix: needs"},
      {"bytes", [](DataConfig& c) { c = talks("chatml"), c.prompt_suffix = " "; }, "data.prompt_suffix: needs"},
      {"bytes", [](DataConfig& c) { c = talks("chatml"); }, "data.chat_template: chatml writes <|im_start|>"},
      {"bytes", [](DataConfig& c) { c.eos_token = "x"; }, "data.eos_token: 'x'"},
      {kFixtures + "chatml", [](DataConfig& c) { c = talks("llama3"); }, "data.chat_template: llama3 writes"},
  };
  for (const auto& row : rows) EXPECT_EQ(refusal(row.tokenizer, row.change).rfind(row.begins, 0), 0u) << row.begins;
}

TEST(Encode, ErrorsNameTheRecord) {
  Desk desk(talks("chatml"), kFixtures + "chatml");
  const std::string role = error_of(Exit::kInput, [&] {
    desk.run(talk({{"user", "q"}, {"tool", "x"}, {"assistant", "a"}}));
  });
  EXPECT_EQ(role.rfind("set.jsonl:7: turn 2", 0), 0u) << role;
  Desk pair(pairs(), kFixtures + "chatml");
  const std::string ill = error_of(Exit::kInput, [&] { pair.run(texts({"q\xff", "a"})); });
  EXPECT_EQ(ill.rfind("set.jsonl:7: ", 0), 0u) << ill;
}

}  // namespace
}  // namespace mantissa
