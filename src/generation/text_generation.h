// Text out of a model: a prompt's tokens, draws until something stops them, text in pieces.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/tokenizer/tokenizer.h"
#include "generation/generator.h"

namespace mantissa {

// The prompt's tokens behind those that the tokenizer's post-processor puts before a text (BOS; left out with
// `special` false). A prompt without any token becomes the token `eos` (-1: the tokenizer's EOS), which ends the
// document before; Exit::kUsage where there is none.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, bool special = true,
                                   int32_t eos = -1);

// The same of a user's turn `prompt` behind a system turn (none where `system` is empty), up to the header of the
// assistant's. A template that writes BOS itself takes none from the post-processor.
std::vector<int32_t> chat_prompt_tokens(const Tokenizer& tokenizer, ChatTemplate chat, const std::string& system,
                                        const std::string& prompt, bool special = true, bool thinking = true);

// eos_token_id (a number or a list) of FOLDER/generation_config.json, else of config.json; empty where neither names
// one. Exit::kInput for another type.
std::vector<int32_t> stop_tokens_of(const std::string& folder);

struct GenerationRequest {
  std::vector<int32_t> prompt;  // not empty
  int64_t max_new_tokens = 128;
  SamplingSettings sampling;
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_texts;
  bool prompt_cached = false;  // the generator holds the prompt from the generation before
};

struct Generation {
  std::string text;    // without special tokens and without what stopped it
  int64_t tokens = 0;  // drawn, with a stop token
  std::string stop;    // why it ended: "token <|im_end|>", "text …", "length"
  double prefill_s = 0, decode_s = 0;
  int64_t prefilled = 0;  // prompt tokens that went through the model
};

// Draws token i from (seed, i). `piece` is handed the text as it comes. Exit::kUsage when prompt and new tokens do not
// fit the generator, Exit::kNonFinite for bad logits. Ids that the tokenizer does not know write nothing.
Generation generate(Generator& generator, const Tokenizer& tokenizer, const GenerationRequest& request,
                    const std::function<void(std::string_view)>& piece = {});

}  // namespace mantissa
