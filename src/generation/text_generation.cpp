#include "generation/text_generation.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "generation/text_stream.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What the post-processor puts before a text, seen at a text of one token.
std::vector<int32_t> leading_tokens(const Tokenizer& tokenizer) {
  Tokenizer::Encoder encoder(tokenizer);
  std::vector<int32_t> plain, whole;
  encoder.encode("a", SpecialTokens::kLeaveOut, plain);
  encoder.encode("a", SpecialTokens::kAdd, whole);
  return {whole.begin(), std::search(whole.begin(), whole.end(), plain.begin(), plain.end())};
}

int32_t token_id(const Json& value, const std::string& path) {
  if (!value.is_number_integer() || value < 0 || value > INT32_MAX)
    fail(Exit::kInput, "{}: eos_token_id is {}, expected a token id or a list of them", path,
         printable(value.dump(), 60));
  return value.get<int32_t>();
}

}  // namespace

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view prompt, bool special, int32_t eos) {
  std::vector<int32_t> ids;
  if (special) ids = leading_tokens(tokenizer);
  Tokenizer::Encoder(tokenizer).encode(prompt, SpecialTokens::kLeaveOut, ids);
  // A prompt that begins with the BOS that stands before it.
  if (special && ids.size() > 1 && ids[0] == tokenizer.bos() && ids[1] == ids[0]) ids.erase(ids.begin());
  if (ids.empty()) {
    if (eos < 0) eos = tokenizer.eos();
    if (eos < 0) fail(Exit::kUsage, "the prompt has no token, and {} names no EOS to begin with", tokenizer.name());
    ids.push_back(eos);
  }
  return ids;
}

std::vector<int32_t> chat_prompt_tokens(const Tokenizer& tokenizer, ChatTemplate chat, const std::string& system,
                                        const std::string& prompt, bool special, bool thinking) {
  std::vector<Turn> turns;
  if (!system.empty()) turns.push_back({"system", system});
  turns.push_back({"user", prompt});
  std::string text;
  for (const ChatSpan& span : render_chat(chat, turns, {.generation_prompt = true, .thinking = thinking}))
    text += span.text;
  return prompt_tokens(tokenizer, text, special && chat_bos(chat).empty());
}

std::vector<int32_t> stop_tokens_of(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string path = join_path(folder, name);
    if (!exists(path)) continue;
    const Json root = read_json(path, uint64_t{1} << 20);
    if (!root.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", path, root.type_name());
    const auto at = root.find("eos_token_id");
    if (at == root.end() || at->is_null()) continue;
    std::vector<int32_t> ids;
    if (at->is_array())
      for (const Json& id : *at) ids.push_back(token_id(id, path));
    else
      ids.push_back(token_id(*at, path));
    if (!ids.empty()) return ids;
  }
  return {};
}

Generation generate(Generator& generator, const Tokenizer& tokenizer, const GenerationRequest& request,
                    const std::function<void(std::string_view)>& piece) {
  const auto n = static_cast<int64_t>(request.prompt.size());
  check(n > 0, "generate: the prompt has no token");
  if (n + request.max_new_tokens > generator.max_tokens())
    fail(Exit::kUsage, "{} tokens of the prompt and {} new ones exceed a context of {}", n, request.max_new_tokens,
         generator.max_tokens());
  Generation result;
  result.stop = "length";
  TextStream stream(request.stop_texts);
  const auto hand_out = [&](std::string_view text) {
    if (piece && !text.empty()) piece(text);
  };

  const auto begin = Clock::now();
  // The last token's logits are computed anew: the bits are the same.
  generator.reset(request.prompt_cached ? n - 1 : 0);
  result.prefilled = n - generator.length();
  std::span<const float> logits =
      generator.append(std::span(request.prompt).subspan(static_cast<size_t>(generator.length())));
  result.prefill_s = since(begin);
  const auto decode = Clock::now();
  while (result.tokens < request.max_new_tokens) {
    const int32_t id = draw_token(logits, request.sampling, static_cast<uint64_t>(result.tokens++));
    if (std::find(request.stop_tokens.begin(), request.stop_tokens.end(), id) != request.stop_tokens.end()) {
      result.stop =
          fmt::format("token {}", tokenizer.known(id) ? printable(tokenizer.bytes_of(id)) : std::to_string(id));
      break;
    }
    // Rows of the embedding beyond the tokenizer stand for nothing.
    if (tokenizer.known(id) && !tokenizer.special(id)) hand_out(stream.add(tokenizer.bytes_of(id)));
    if (stream.stopped()) {
      result.stop = fmt::format("text {}", printable(stream.stop()));
      break;
    }
    if (result.tokens < request.max_new_tokens) logits = generator.append(std::span(&id, 1));
  }
  hand_out(stream.finish());
  result.decode_s = since(decode);
  result.text = stream.text();
  return result;
}

}  // namespace mantissa
