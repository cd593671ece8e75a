#include "data/chat.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

std::string text_of(const std::vector<ChatSpan>& spans, bool learned_alone = false) {
  std::string text;
  for (const ChatSpan& span : spans)
    if (span.learned || !learned_alone) text += span.text;
  return text;
}

// What transformers' apply_chat_template wrote (tests/interop/chat_templates.py --write).
TEST(Chat, WritesTheBytesOfTransformers) {
  const Json cases = read_json(MANTISSA_SOURCE_DIR "/tests/fixtures/chat_templates.json");
  ASSERT_GE(cases.size(), 200u);
  for (const Json& row : cases) {
    std::vector<Turn> turns;
    for (const Json& message : row["messages"]) turns.push_back({message["role"], message["content"]});
    const ChatOptions options{.generation_prompt = row["options"].value("add_generation_prompt", false),
                              .thinking = row["options"].value("enable_thinking", true)};
    const auto spans = render_chat(chat_template_named(row["template"].get<std::string>()), turns, options);
    EXPECT_EQ(text_of(spans), row["text"].get<std::string>()) << row;
    for (size_t i = 1; i < spans.size(); ++i) EXPECT_NE(spans[i].learned, spans[i - 1].learned) << row;
  }
}

TEST(Chat, LearnsTheAnswersAndWhatEndsThem) {
  const std::vector<Turn> turns = {
      {"system", "rules"}, {"user", "q1"}, {"assistant", " a1 "}, {"user", "q2"}, {"assistant", "a2"}};
  const auto learned = [&](ChatTemplate chat) { return text_of(render_chat(chat, turns), true); };
  EXPECT_EQ(learned(ChatTemplate::kChatml), " a1 <|im_end|>a2<|im_end|>");
  EXPECT_EQ(learned(ChatTemplate::kLlama3), "a1<|eot_id|>a2<|eot_id|>");
  EXPECT_EQ(learned(ChatTemplate::kQwen3), " a1 <|im_end|><think>\n\n</think>\n\na2<|im_end|>");
  EXPECT_EQ(text_of(render_chat(ChatTemplate::kLlama3, {turns[1]}, {.generation_prompt = true}), true), "");
}

TEST(Chat, WhatIsAskedIsNotLearned) {
  const std::vector<Turn> turns = {
      {"user", "q1", true}, {"assistant", "a1", true}, {"user", "q2", true}, {"assistant", "a2"}};
  for (const ChatTemplate chat : {ChatTemplate::kChatml, ChatTemplate::kLlama3, ChatTemplate::kQwen3}) {
    const std::string learned = text_of(render_chat(chat, turns), true);
    EXPECT_EQ(learned.find("a1"), std::string::npos) << learned;
    EXPECT_NE(learned.find("a2" + std::string(chat_end(chat))), std::string::npos) << learned;
    std::vector<Turn> all = turns;
    for (Turn& turn : all) turn.context = false;
    EXPECT_EQ(text_of(render_chat(chat, turns)), text_of(render_chat(chat, all)));
  }
}

TEST(Chat, AutoIsTheTemplateOfTheTokenizersFolder) {
  const std::string chatml =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  TempFolder folder;
  DataConfig config;
  config.tokenizer = folder.path();
  config.chat_template = "auto";
  const auto refusal = [&] { return error_of(Exit::kUsage, [&] { chat_template_of(config); }); };
  EXPECT_EQ(refusal(),
            "data.chat_template: auto, but " + folder.path() + " has no chat template; name chatml, llama3 or qwen3");
  const auto put = [&](const Json& value) {
    write_atomic(folder / "tokenizer_config.json", Json{{"chat_template", value}}.dump());
  };
  put(chatml);
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kChatml);
  std::string written_out = chatml;
  for (size_t at = 0; (at = written_out.find("\\n", at)) != std::string::npos;) written_out.replace(at, 2, "\n");
  put(written_out);
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kChatml);
  config.tokenizer = folder / "tokenizer.json";
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kChatml);
  put(Json::array({{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", chatml + "\n"}}}));
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kChatml);
  put("{{ messages }}");
  EXPECT_NE(refusal().find("tokenizer_config.json (SHA-256 "), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("is none of chatml, llama3 and qwen3"), std::string::npos) << refusal();
  // Newer folders keep it in a file of its own, which counts first.
  write_atomic(folder / "chat_template.jinja", chatml);
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kChatml);
  config.tokenizer = "bytes";
  EXPECT_NE(refusal().find("bytes has no chat template"), std::string::npos);
  config.chat_template = "llama3";
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kLlama3);
  // Those of the models, where they are at hand.
  const char* data = std::getenv("MANTISSA_TEST_DATA");
  if (data == nullptr) return;
  config.chat_template = "auto";
  config.tokenizer = std::string(data) + "/tokenizers/llama3";
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kLlama3);
  config.tokenizer = std::string(data) + "/tokenizers/qwen3";
  EXPECT_EQ(chat_template_of(config), ChatTemplate::kQwen3);
}

TEST(Chat, RefusesRolesAndNames) {
  EXPECT_EQ(error_of(Exit::kInput,
                     [] {
                       render_chat(ChatTemplate::kQwen3, {{"user", "q"}, {"tool", "42"}});
                     }),
            "turn 2 has role 'tool', expected system, user or assistant; turns of tools are not taken");
  EXPECT_NE(error_of(Exit::kUsage, [] { chat_template_named("llama2"); }).find("llama2"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
