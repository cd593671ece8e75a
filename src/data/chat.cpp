#include "data/chat.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"

namespace mantissa {
namespace {

constexpr std::string_view kImStart = "<|im_start|>", kImEnd = "<|im_end|>";
constexpr std::string_view kBeginOfText = "<|begin_of_text|>", kEot = "<|eot_id|>";
constexpr std::string_view kStartHeader = "<|start_header_id|>", kEndHeader = "<|end_header_id|>";
constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

// Length in bytes of the white space character that `text` begins with, 0 when it begins with none: the characters of
// Python's str.isspace(), Unicode 16.
size_t space_at(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned a = byte(0), b = byte(1), c = byte(2);
  if ((a >= 0x09 && a <= 0x0d) || (a >= 0x1c && a <= 0x20)) return 1;
  if (a == 0xc2 && (b == 0x85 || b == 0xa0)) return 2;                            // U+0085, U+00A0
  if (a == 0xe1 && b == 0x9a && c == 0x80) return 3;                              // U+1680
  if (a == 0xe2 && b == 0x80 && c >= 0x80 && c <= 0x8a) return 3;                 // U+2000 to U+200A
  if (a == 0xe2 && b == 0x80 && (c == 0xa8 || c == 0xa9 || c == 0xaf)) return 3;  // U+2028, U+2029, U+202F
  if (a == 0xe2 && b == 0x81 && c == 0x9f) return 3;                              // U+205F
  if (a == 0xe3 && b == 0x80 && c == 0x80) return 3;                              // U+3000
  return 0;
}

// Python's str.strip() of well-formed UTF-8.
std::string_view strip(std::string_view text) {
  while (const size_t n = space_at(text)) text.remove_prefix(n);
  for (;;) {
    size_t begin = text.size();  // of the last character
    while (begin > 0 && (static_cast<unsigned char>(text[begin - 1]) & 0xc0) == 0x80) --begin;
    if (begin == 0 || space_at(text.substr(begin - 1)) != text.size() - begin + 1) return text;
    text = text.substr(0, begin - 1);
  }
}

std::string_view strip_newlines_left(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view strip_newlines_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);  // npos + 1 is 0
}

class Spans {
 public:
  template <class... Parts>
  void add(bool learned, Parts... parts) {
    if (spans_.empty() || spans_.back().learned != learned) spans_.push_back({{}, learned});
    (spans_.back().text.append(parts), ...);
  }
  std::vector<ChatSpan> take() { return std::move(spans_); }

 private:
  std::vector<ChatSpan> spans_;
};

// <|im_start|>role\ncontent<|im_end|>\n
void add_im_turn(Spans& spans, const Turn& turn, std::string_view content) {
  const bool learned = turn.role == "assistant" && !turn.context;
  spans.add(false, kImStart, turn.role, "\n");
  spans.add(learned, content, kImEnd);
  spans.add(false, "\n");
}

std::vector<ChatSpan> render_chatml(const std::vector<Turn>& turns, const ChatOptions& options) {
  Spans spans;
  for (const Turn& turn : turns) add_im_turn(spans, turn, turn.content);
  if (options.generation_prompt) spans.add(false, kImStart, "assistant\n");
  return spans.take();
}

std::vector<ChatSpan> render_llama3(const std::vector<Turn>& turns, const ChatOptions& options) {
  Spans spans;
  for (const Turn& turn : turns) {
    if (&turn == turns.data()) spans.add(false, kBeginOfText);
    spans.add(false, kStartHeader, turn.role, kEndHeader, "\n\n");
    spans.add(turn.role == "assistant" && !turn.context, strip(turn.content), kEot);
  }
  if (options.generation_prompt) spans.add(false, kStartHeader, "assistant", kEndHeader, "\n\n");
  return spans.take();
}

// The index of the last user turn that is no tool's response; without one the last turn's.
size_t last_query(const std::vector<Turn>& turns) {
  for (size_t i = turns.size(); i-- > 0;) {
    const std::string_view text = turns[i].content;
    if (turns[i].role == "user" && !(text.starts_with("<tool_response>") && text.ends_with("</tool_response>")))
      return i;
  }
  return turns.empty() ? 0 : turns.size() - 1;
}

std::string qwen3_answer(std::string_view content, bool behind_query, bool last) {
  std::string_view reasoning;
  if (const size_t first = content.find(kEndThink); first != std::string_view::npos) {
    reasoning = strip_newlines_right(content.substr(0, first));
    if (const size_t begin = reasoning.rfind(kThink); begin != std::string_view::npos)
      reasoning.remove_prefix(begin + kThink.size());
    reasoning = strip_newlines_left(reasoning);
    content = strip_newlines_left(content.substr(content.rfind(kEndThink) + kEndThink.size()));
  }
  if (!behind_query || (!last && reasoning.empty())) return std::string(content);
  std::string out(kThink);
  out.append("\n").append(strip_newlines_right(strip_newlines_left(reasoning))).append("\n").append(kEndThink);
  return out.append("\n\n").append(strip_newlines_left(content));
}

std::vector<ChatSpan> render_qwen3(const std::vector<Turn>& turns, const ChatOptions& options) {
  Spans spans;
  const size_t query = last_query(turns);
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string& content = turns[i].content;
    const bool answer = turns[i].role == "assistant";
    add_im_turn(spans, turns[i], answer ? qwen3_answer(content, i > query, i + 1 == turns.size()) : content);
  }
  if (options.generation_prompt) {
    spans.add(false, kImStart, "assistant\n");
    if (!options.thinking) spans.add(false, kThink, "\n\n", kEndThink, "\n\n");
  }
  return spans.take();
}

// The texts of the named templates, by their SHA-256.
struct KnownTemplate {
  std::string_view sha256;
  ChatTemplate chat;
};
constexpr KnownTemplate kKnown[] = {
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", ChatTemplate::kChatml},
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",
     ChatTemplate::kChatml},  // its line breaks written out
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", ChatTemplate::kLlama3},
    {"87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", ChatTemplate::kQwen3},
};
constexpr uint64_t kMaxTemplateFile = uint64_t{4} << 20;

bool of_tools(std::string_view role) {
  constexpr std::string_view kRoles[] = {"tool",          "function",    "ipython",      "observation",
                                         "function_call", "tool_result", "tool_response"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

// The template's text and where it stands; "" where the folder has none. Of a list of named ones that called default.
std::string template_text(const std::string& folder, std::string& where) {
  where = join_path(folder, "chat_template.jinja");
  if (exists(where)) return read_text(where, kMaxTemplateFile);
  where = join_path(folder, "tokenizer_config.json");
  if (!exists(where)) return "";
  const Json root = read_json(where, kMaxTemplateFile);
  const auto at = root.is_object() ? root.find("chat_template") : root.end();
  if (at == root.end()) return "";
  if (at->is_string()) return at->get<std::string>();
  if (at->is_array())
    for (const Json& named : *at)
      if (named.is_object() && named.value("name", Json()) == "default" && named.value("template", Json()).is_string())
        return named.at("template").get<std::string>();
  return "";
}

}  // namespace

ChatTemplate chat_template_of(const DataConfig& config) {
  if (config.chat_template != "auto") return chat_template_named(config.chat_template);
  const std::string& path = config.tokenizer;
  const std::string folder = is_directory(path) ? path : std::filesystem::path(path).parent_path().string();
  std::string where;
  const std::string text = path == "bytes" ? "" : template_text(folder, where);
  if (text.empty())
    fail(Exit::kUsage, "data.chat_template: auto, but {} has no chat template; name chatml, llama3 or qwen3", path);
  const std::string hash = sha256(trim(text));
  for (const KnownTemplate& known : kKnown)
    if (known.sha256 == hash) return known.chat;
  fail(
      Exit::kUsage,
      "data.chat_template: auto, but the template in {} (SHA-256 {}) is none of chatml, llama3 and qwen3; name the one "
      "to train with",
      where, hash.substr(0, 16));
}

ChatTemplate chat_template_named(std::string_view name) {
  if (name == "none") return ChatTemplate::kNone;
  if (name == "chatml") return ChatTemplate::kChatml;
  if (name == "llama3") return ChatTemplate::kLlama3;
  if (name == "qwen3") return ChatTemplate::kQwen3;
  fail(Exit::kUsage, "chat template {}: unknown, expected none, chatml, llama3 or qwen3", printable(name));
}

std::vector<ChatSpan> render_chat(ChatTemplate chat, const std::vector<Turn>& turns, const ChatOptions& options) {
  for (size_t i = 0; i < turns.size(); ++i)
    if (turns[i].role != "system" && turns[i].role != "user" && turns[i].role != "assistant")
      fail(Exit::kInput, "turn {} has role '{}', expected system, user or assistant{}", i + 1,
           printable(turns[i].role, 40), of_tools(turns[i].role) ? "; turns of tools are not taken" : "");
  switch (chat) {
    case ChatTemplate::kChatml:
      return render_chatml(turns, options);
    case ChatTemplate::kLlama3:
      return render_llama3(turns, options);
    case ChatTemplate::kQwen3:
      return render_qwen3(turns, options);
    case ChatTemplate::kNone:
      break;
  }
  fail(Exit::kInternal, "render_chat: called without a template");
}

std::vector<std::string_view> chat_tokens(ChatTemplate chat) {
  switch (chat) {
    case ChatTemplate::kChatml:
    case ChatTemplate::kQwen3:
      return {kImStart, kImEnd};
    case ChatTemplate::kLlama3:
      return {kBeginOfText, kStartHeader, kEndHeader, kEot};
    case ChatTemplate::kNone:
      break;
  }
  return {};
}

std::string_view chat_bos(ChatTemplate chat) { return chat == ChatTemplate::kLlama3 ? kBeginOfText : ""; }

std::string_view chat_end(ChatTemplate chat) {
  if (chat == ChatTemplate::kNone) return "";
  return chat == ChatTemplate::kLlama3 ? kEot : kImEnd;
}

}  // namespace mantissa
