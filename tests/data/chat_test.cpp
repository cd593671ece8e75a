#include "data/chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;

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

TEST(Chat, RefusesRolesAndNames) {
  EXPECT_EQ(error_of(Exit::kInput,
                     [] {
                       render_chat(ChatTemplate::kQwen3, {{"user", "q"}, {"tool", "42"}});
                     }),
            "turn 2 has role 'tool', expected system, user or assistant");
  EXPECT_NE(error_of(Exit::kUsage, [] { chat_template_named("llama2"); }).find("llama2"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
