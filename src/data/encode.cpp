#include "data/encode.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace mantissa {
namespace {

// eos_token_id of a model's config.json, the first of a list; -1 when the file or the key is not there.
int32_t model_eos(const std::string& path) {
  if (!exists(path)) return -1;
  const Json root = read_json(path, uint64_t{1} << 20);
  if (!root.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", path, root.type_name());
  auto at = root.find("eos_token_id");
  if (at == root.end() || at->is_null()) return -1;
  const Json& id = at->is_array() && !at->empty() ? at->front() : *at;
  if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
    fail(Exit::kInput, "{}: eos_token_id is {}, expected a token id or a list of them", path,
         printable(at->dump(), 60));
  return id.get<int32_t>();
}

// Why the keys of fine-tuning contradict each other, "" when they do not.
std::string contradiction(const DataConfig& c) {
  const bool messages = !c.messages_key.empty();
  if (c.prompt_key.empty() != c.response_key.empty())
    return c.prompt_key.empty() ? "data.response_key: needs data.prompt_key"
                                : "data.prompt_key: needs data.response_key";
  if (messages && !c.prompt_key.empty()) return "data.messages_key: excludes data.prompt_key";
  if (messages && c.chat_template == "none")
    return "data.messages_key: needs data.chat_template, auto, chatml, llama3 or qwen3";
  if (!c.fine_tuning() && c.chat_template != "none")
    return "data.chat_template: needs data.messages_key or data.prompt_key";
  const bool plain_pair = !c.prompt_key.empty() && c.chat_template == "none";
  if (!plain_pair && c.prompt_suffix != DataConfig().prompt_suffix)
    return "data.prompt_suffix: needs data.prompt_key, and chat_template none";
  if (c.chat_template == "none" && !c.system_prompt.empty()) return "data.system_prompt: needs data.chat_template";
  return "";
}

// Some assistant says something.
bool answered(const std::vector<Turn>& turns) {
  return std::any_of(turns.begin(), turns.end(), [](const Turn& turn) {
    return turn.role == "assistant" && !turn.context && !turn.content.empty();
  });
}

}  // namespace

EncodeCounts& EncodeCounts::operator+=(const EncodeCounts& other) {
  documents += other.documents;
  empty += other.empty;
  short_ones += other.short_ones;
  truncated += other.truncated;
  truncated_tokens += other.truncated_tokens;
  without_response += other.without_response;
  text_bytes += other.text_bytes;
  tokens += other.tokens;
  learned_tokens += other.learned_tokens;
  return *this;
}

DocumentEncoder::DocumentEncoder(const DataConfig& config, const Tokenizer& tokenizer)
    : config_(config), tokenizer_(tokenizer), chat_(chat_template_of(config)), fine_tuning_(config.fine_tuning()) {
  if (const std::string why = contradiction(config); !why.empty()) fail(Exit::kUsage, "{}", why);
  if (!config.messages_key.empty())
    columns_.messages = config.messages_key;
  else if (fine_tuning_)
    columns_.columns = {config.prompt_key, config.response_key};
  else
    columns_.columns = {config.text_key};
  check_template();
  if (chat_ != ChatTemplate::kNone)
    eos_origin_ = "data.chat_template";
  else if (config.append_eos)
    choose_eos();
  if (config.add_special_tokens) find_surrounding();
  if (eos_ >= 0 && (behind_.empty() || behind_.back() != eos_)) behind_.push_back(eos_);
}

void DocumentEncoder::choose_eos() {
  const std::string model = config_.model_folder.empty() ? "" : join_path(config_.model_folder, "config.json");
  if (tokenizer_.is_bytes()) {
    if (!config_.eos_token.empty())
      fail(Exit::kUsage, "data.eos_token: '{}' is given, but with the bytes tokenizer byte 0 ends a document",
           printable(config_.eos_token));
    eos_ = 0;
    eos_origin_ = "bytes";
  } else if (!config_.eos_token.empty()) {
    eos_ = tokenizer_.find(config_.eos_token);
    eos_origin_ = "data.eos_token";
    if (eos_ < 0)
      fail(Exit::kUsage, "data.eos_token: '{}' is no token of {}", printable(config_.eos_token), tokenizer_.name());
  } else if (const int32_t id = model.empty() ? -1 : model_eos(model); id >= 0) {
    eos_ = id;
    eos_origin_ = model;
    if (!tokenizer_.known(id))
      fail(Exit::kInput, "{}: eos_token_id is {}, which is no token of {}; data.eos_token names another", model, id,
           tokenizer_.name());
  } else {
    eos_ = tokenizer_.eos();
    eos_origin_ = "tokenizer";
    if (eos_ < 0)
      fail(Exit::kUsage,
           "data.append_eos: {} names no EOS; give data.eos_token (--eos-token), or data.append_eos: false "
           "(--append-eos=false)",
           tokenizer_.name());
  }
}

// What the post-processor puts around a text, seen at a text of one token.
void DocumentEncoder::find_surrounding() {
  Tokenizer::Encoder encoder(tokenizer_);
  std::vector<int32_t> plain, whole;
  encoder.encode("a", SpecialTokens::kLeaveOut, plain);
  encoder.encode("a", SpecialTokens::kAdd, whole);
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  check(at != whole.end(), "{}: its post-processor changes the tokens of a text", tokenizer_.name());
  before_.assign(whole.begin(), at);
  behind_.assign(at + static_cast<std::ptrdiff_t>(plain.size()), whole.end());
}

void DocumentEncoder::check_template() const {
  Tokenizer::Encoder encoder(tokenizer_);
  std::vector<int32_t> ids;
  for (const std::string_view token : chat_tokens(chat_)) {
    ids.clear();
    encoder.encode(token, SpecialTokens::kLeaveOut, ids);
    if (ids.size() != 1)
      fail(Exit::kUsage, "data.chat_template: {} writes {}, which is no token of {}", config_.chat_template, token,
           tokenizer_.name());
  }
}

void DocumentEncoder::add(Tokenizer::Encoder& encoder, std::string_view text, bool learned,
                          EncodedDocument& document) const {
  if (tokenizer_.is_bytes())
    if (const size_t at = text.find('\0'); at != std::string_view::npos)
      fail(Exit::kInput, "holds a byte 0 (byte {} of the text), which separates documents; is this UTF-16 or no text?",
           at);
  encoder.encode(text, SpecialTokens::kLeaveOut, document.ids);
  if (fine_tuning_) document.learned.resize(document.ids.size(), learned ? 1 : 0);
}

void DocumentEncoder::encode_pair(Tokenizer::Encoder& encoder, const Record& record, EncodedDocument& document) const {
  add(encoder, record.texts[0] + config_.prompt_suffix, false, document);
  // A prompt that begins with the BOS that stands before it.
  if (!before_.empty() && document.ids.size() > before_.size() && document.ids[before_.size()] == before_.back() &&
      before_.back() == tokenizer_.bos()) {
    document.ids.erase(document.ids.begin());
    document.learned.erase(document.learned.begin());
  }
  add(encoder, record.texts[1], true, document);
}

void DocumentEncoder::encode_chat(Tokenizer::Encoder& encoder, const std::vector<Turn>& turns,
                                  EncodedDocument& document) const {
  for (const ChatSpan& span : render_chat(chat_, turns)) add(encoder, span.text, span.learned, document);
}

// Cuts at sequence_length; false when no position of the row would have a label.
bool DocumentEncoder::cut(EncodedDocument& document, EncodeCounts& counts) const {
  const auto limit = static_cast<size_t>(config_.sequence_length);
  const size_t kept = std::min(document.ids.size(), limit);
  const auto end = document.learned.begin() + static_cast<std::ptrdiff_t>(kept);
  // The first token of a row is nobody's label.
  if (kept < 2 || std::find(document.learned.begin() + 1, end, 1) == end) {
    ++counts.without_response;
    return false;
  }
  if (document.ids.size() > limit) {
    ++counts.truncated;
    counts.truncated_tokens += static_cast<int64_t>(document.ids.size() - limit);
    document.ids.resize(limit);
    document.learned.resize(limit);
  }
  return true;
}

bool DocumentEncoder::encode(Tokenizer::Encoder& encoder, const Record& record, EncodedDocument& document,
                             EncodeCounts& counts) const {
  // Of a prompt and a response that are lists of messages too.
  const bool messages = !columns_.messages.empty() || !record.turns.empty();
  check(!columns_.messages.empty() || record.texts.size() == columns_.columns.size(),
        "record {} has {} columns, expected {}", record.where, record.texts.size(), columns_.columns.size());
  document.ids.clear();
  document.learned.clear();
  if (messages && chat_ == ChatTemplate::kNone)
    fail(Exit::kUsage,
         "{}: \"{}\" and \"{}\" are lists of messages: they need data.chat_template, auto, chatml, llama3 or "
         "qwen3",
         record.where, printable(columns_.columns[0], 40), printable(columns_.columns[1], 40));
  if (messages ? !answered(record.turns) : record.texts.back().empty()) {
    ++counts.empty;
    return false;
  }
  const auto bytes = static_cast<int64_t>(record.text_bytes());
  if (bytes < config_.min_document_bytes) {
    ++counts.short_ones;
    return false;
  }
  in_context(record.where, [&] {
    // A template that writes BOS itself takes none from the post-processor.
    if (chat_bos(chat_).empty()) document.ids = before_;
    document.learned.resize(fine_tuning_ ? document.ids.size() : 0);
    if (chat_ != ChatTemplate::kNone) {
      std::vector<Turn> turns;
      const bool system = messages && record.turns.front().role == "system";
      if (!system && !config_.system_prompt.empty()) turns.push_back({"system", config_.system_prompt});
      if (messages) {
        turns.insert(turns.end(), record.turns.begin(), record.turns.end());
      } else {
        turns.push_back({"user", record.texts[0]});
        turns.push_back({"assistant", record.texts[1]});
      }
      encode_chat(encoder, turns, document);
      return;
    }
    if (fine_tuning_)
      encode_pair(encoder, record, document);
    else
      add(encoder, record.texts[0], true, document);
    document.ids.insert(document.ids.end(), behind_.begin(), behind_.end());
    if (fine_tuning_) document.learned.resize(document.ids.size(), 1);
  });
  if (fine_tuning_ && !cut(document, counts)) return false;
  ++counts.documents;
  counts.text_bytes += bytes;
  counts.tokens += static_cast<int64_t>(document.ids.size());
  counts.learned_tokens += fine_tuning_ ? std::count(document.learned.begin(), document.learned.end(), 1)
                                        : static_cast<int64_t>(document.ids.size());
  return true;
}

}  // namespace mantissa
