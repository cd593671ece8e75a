// Prompts as tokens, and generations from them.
#include "generation/text_generation.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "data/encode.h"
#include "tests/base/support.h"
#include "train/engine.h"

namespace mantissa {
namespace {

const std::string kTokenizers = std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special) {
  std::vector<int32_t> ids;
  Tokenizer::Encoder(tokenizer).encode(text, special, ids);
  return ids;
}

TEST(PromptTokens, BeginAsDocumentsDo) {
  const Tokenizer bytes = Tokenizer::bytes(), llama = Tokenizer::open(kTokenizers + "llama3");
  EXPECT_EQ(prompt_tokens(bytes, "ab"), (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(prompt_tokens(bytes, ""), (std::vector<int32_t>{0}));
  EXPECT_EQ(prompt_tokens(bytes, "", true, 7), (std::vector<int32_t>{7}));
  const std::vector<int32_t> whole = ids_of(llama, "some text", SpecialTokens::kAdd);
  ASSERT_EQ(whole.front(), llama.bos());
  EXPECT_EQ(prompt_tokens(llama, "some text"), whole);
  EXPECT_EQ(prompt_tokens(llama, "<|begin_of_text|>some text"), whole);  // BOS never twice
  EXPECT_EQ(prompt_tokens(llama, "some text", false), ids_of(llama, "some text", SpecialTokens::kLeaveOut));
  EXPECT_EQ(prompt_tokens(llama, ""), (std::vector<int32_t>{llama.bos()}));
}

// A model is asked with the tokens that an example of fine-tuning has before its response.
TEST(PromptTokens, OfAChatAreThoseOfAnExample) {
  for (const auto& [folder, name] : {std::pair("chatml", "chatml"), std::pair("llama3", "llama3")})
    for (const char* system : {"", "Be brief."}) {
      SCOPED_TRACE(name);
      const Tokenizer tokenizer = Tokenizer::open(kTokenizers + folder);
      DataConfig config;
      config.prompt_key = "q", config.response_key = "a";
      config.chat_template = name, config.system_prompt = system;
      const DocumentEncoder encoder(config, tokenizer);
      Tokenizer::Encoder state(tokenizer);
      EncodedDocument example;
      EncodeCounts counts;
      Record record;
      record.texts = {"What is 2 + 2?", "four"};
      ASSERT_TRUE(encoder.encode(state, record, example, counts));
      const auto response = std::find(example.learned.begin(), example.learned.end(), 1) - example.learned.begin();
      EXPECT_EQ(chat_prompt_tokens(tokenizer, chat_template_named(name), system, "What is 2 + 2?"),
                std::vector<int32_t>(example.ids.begin(), example.ids.begin() + response));
    }
}

TEST(StopTokens, AreANumberOrAListOfEitherFile) {
  const testing::TempFolder folder;
  const std::string path = folder / "";
  const auto write = [&](const char* file, const char* text) { write_atomic(folder / file, text); };
  EXPECT_TRUE(stop_tokens_of(path).empty());
  write("config.json", R"({"eos_token_id": 2})");
  EXPECT_EQ(stop_tokens_of(path), std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(stop_tokens_of(path), std::vector<int32_t>{2});
  write("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(stop_tokens_of(path), (std::vector<int32_t>{5, 6}));
  for (const char* bad : {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, 2.5]})", R"({"eos_token_id": 1e99})",
                          R"({"eos_token_id": 4294967296})", "[]", "{"}) {
    write("generation_config.json", bad);
    try {
      stop_tokens_of(path);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput) << bad;
    }
  }
}

class Generating : public ::testing::Test {
 protected:
  Generating() {
    ModelConfig m;
    m.vocab_size = 300;  // more rows than bytes has ids
    m.hidden_size = 64, m.intermediate_size = 96;
    m.num_hidden_layers = 1, m.num_attention_heads = 2, m.num_key_value_heads = 2;
    m.max_position_embeddings = 64;
    m.resolve();
    PrecisionConfig precision;
    engine_ = std::make_unique<Engine>(m, precision, EngineOptions{.tokens = 64, .sequence_length = 64});
    engine_->build();
    engine_->initialize(1);
    generator_ = std::make_unique<Generator>(engine_->exec(), m, engine_->params(), 64);
  }
  Generation run(const GenerationRequest& request) {
    std::string pieces;
    const Generation g = generate(*generator_, bytes_, request, [&](std::string_view piece) { pieces += piece; });
    EXPECT_EQ(pieces, g.text);
    return g;
  }

  const Tokenizer bytes_ = Tokenizer::bytes();
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Generator> generator_;
};

TEST_F(Generating, KeptPromptsGiveTheSameText) {
  GenerationRequest request{.prompt = {'a', 'b', 'c'}, .max_new_tokens = 40};
  const Generation first = run(request);
  EXPECT_EQ(first.tokens, 40);
  EXPECT_EQ(first.stop, "length");
  EXPECT_EQ(first.prefilled, 3);
  request.prompt_cached = true;
  const Generation kept = run(request);
  EXPECT_EQ(kept.text, first.text);
  EXPECT_EQ(kept.prefilled, 1);
  request.prompt = {'z'};
  request.prompt_cached = false;
  EXPECT_NE(run(request).text, first.text);
}

TEST_F(Generating, EndsWithTheRoomAndRefusesMore) {
  EXPECT_EQ(run({.prompt = std::vector<int32_t>(24, 'a'), .max_new_tokens = 40}).tokens, 40);
  try {
    run({.prompt = std::vector<int32_t>(25, 'a'), .max_new_tokens = 40});
    ADD_FAILURE() << "65 tokens in a context of 64";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::kUsage);
  }
}

// A stop token ends at once and writes nothing; it counts as drawn.
TEST_F(Generating, StopTokensWriteNothing) {
  std::vector<int32_t> every;
  for (int32_t id = 0; id < 300; ++id) every.push_back(id);
  const Generation g = run({.prompt = {'a'}, .max_new_tokens = 40, .stop_tokens = every});
  EXPECT_EQ(g.tokens, 1);
  EXPECT_EQ(g.text, "");
  EXPECT_TRUE(g.stop.starts_with("token ")) << g.stop;
}

}  // namespace
}  // namespace mantissa
