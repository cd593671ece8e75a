// Conversations as text: named templates that write the bytes of transformers' `apply_chat_template` for system, user
// and assistant turns. Formats: chatml of Hugging Face's "Templates for chat models", llama3 of
// Meta-Llama-3-8B-Instruct, qwen3 of Qwen3 (without tools).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/record.h"

namespace mantissa {

enum class ChatTemplate { kNone, kChatml, kLlama3, kQwen3 };

// "chatml", "llama3", "qwen3", "none"; Exit::kUsage for another name.
ChatTemplate chat_template_named(std::string_view name);
// data.chat_template, of which "auto" is the template that stands in the tokenizer's folder (chat_template.jinja, else
// chat_template of tokenizer_config.json): recognised by its text. Exit::kUsage when there is none, or another one.
ChatTemplate chat_template_of(const DataConfig& config);

// A stretch of the rendered text. Spans end to end are the conversation; no two neighbours have the same `learned`.
struct ChatSpan {
  std::string text;
  bool learned = false;  // what an assistant says, from behind its header to the token that ends the turn, with it
};

struct ChatOptions {
  bool generation_prompt = false;  // ends with the header of an assistant turn, for sampling
  bool thinking = true;            // qwen3: false puts an empty <think></think> behind that header
};

// Exit::kInput for a role other than system, user and assistant. Turns that are context are not learned. llama3 strips
// the content of turns as Python does; qwen3 leaves the reasoning of turns before the last question out and gives the
// last turn a <think> block.
std::vector<ChatSpan> render_chat(ChatTemplate chat, const std::vector<Turn>& turns, const ChatOptions& options = {});

// The tokens that a template writes, which the tokenizer must have.
std::vector<std::string_view> chat_tokens(ChatTemplate chat);
// The token that the template puts in front of a conversation, "" when it puts none.
std::string_view chat_bos(ChatTemplate chat);
// The token that ends a turn, "" for kNone.
std::string_view chat_end(ChatTemplate chat);

}  // namespace mantissa
