#include "data/readers/json_columns.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/readers/readers.h"
#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

constexpr size_t kFewKeys = 16;  // compared one by one

constexpr uint64_t repeat(uint8_t byte) { return uint64_t{0x0101010101010101} * byte; }

// The first byte of [p, end) that is a quote, a backslash or below 0x20. Eight at a time: a byte of `marks` has its
// high bit when it is one; a carry may mark a byte above a marked one, never below.
const char* plain_end(const char* p, const char* end) {
  const auto zero = [](uint64_t x) { return (x - repeat(1)) & ~x; };
  for (; end - p >= 8; p += 8) {
    uint64_t x = 0;
    std::memcpy(&x, p, 8);
    const uint64_t low = (x - repeat(0x20)) & ~x;
    const uint64_t marks = (low | zero(x ^ repeat('"')) | zero(x ^ repeat('\\'))) & repeat(0x80);
    if (marks != 0) return p + __builtin_ctzll(marks) / 8;
  }
  while (p < end && *p != '"' && *p != '\\' && static_cast<unsigned char>(*p) >= 0x20) ++p;
  return p;
}

}  // namespace

JsonColumns::JsonColumns(const RecordSpec& spec, const DataConfig& config, std::string_view unit)
    : spec_(spec), config_(config), unit_(unit) {
  for (const std::string& name : spec.columns) wanted_.push_back({.name = name, .turns = {}});
  if (!spec.messages.empty()) wanted_.push_back({.name = spec.messages, .turns = {}});
  for (const Wanted& wanted : wanted_) nested_ |= wanted.name.find('.') != std::string::npos;
}

void JsonColumns::bad(const char* at, std::string_view expected) const {
  const std::string found =
      at < end_ ? "\"" + printable(std::string_view(at, std::min<size_t>(12, static_cast<size_t>(end_ - at)))) + "\""
                : "the end of the " + unit_;
  fail(Exit::kInput, "{}: not JSON at byte {}: expected {}, found {}", record_->where, at - begin_ + 1, expected,
       found);
}

void JsonColumns::wrong_type(std::string_view what, std::string_view expected) const {
  fail(Exit::kInput, "{}: {} is {}, expected {}", record_->where, what, type_name(), expected);
}

void JsonColumns::space() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r' || *at_ == '\n')) ++at_;
}

bool JsonColumns::take(char c) {
  space();
  if (peek() != c || at_ == end_) return false;
  ++at_;
  return true;
}

void JsonColumns::expect(char c, std::string_view expected) {
  if (!take(c)) bad(at_, expected);
}

const char* JsonColumns::type_name() const {
  switch (peek()) {
    case '{':
      return "object";
    case '[':
      return "array";
    case '"':
      return "string";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
  }
}

void JsonColumns::read(std::string_view line, Record& record) {
  record_ = &record;
  begin_ = at_ = line.data();
  end_ = begin_ + line.size();
  keys_.clear();
  decoded_.clear();
  if (const size_t good = tokenizer::find_ill_formed(line); good != line.size()) bad(begin_ + good, "UTF-8");
  record.texts.resize(spec_.columns.size());
  for (Wanted& wanted : wanted_) wanted.seen = wanted.list = false, wanted.count = 0;
  space();
  if (peek() != '{') {
    value(0);
    at_ = begin_;
    space();
    fail(Exit::kInput, "{}: is {}, expected an object", record.where, type_name());
  }
  columns("", 1);
  space();
  if (at_ != end_) bad(at_, "the end of the " + unit_);
  for (const Wanted& wanted : wanted_)
    if (!wanted.seen) no_column(record.where, wanted.name, config_, {keys_.begin(), keys_.end()});
  close_keys(0);
  assemble();
  if (config_.tokenizer != "bytes") return;
  for (const std::string& text : record.texts) check_no_zero(text, record.where);
  for (const Turn& turn : record.turns) check_no_zero(turn.content, record.where);
}

// The object at hand, whose keys stand under `path` ("" or "meta."); `depth` containers are open inside it.
void JsonColumns::columns(const std::string& path, int depth) {
  ++at_;
  const size_t outer = keys_.size();
  for (bool first = true; !take('}'); first = false) {
    if (!first) expect(',', "\",\" or \"}\"");
    const std::string_view name = key(outer);
    const auto found = std::find_if(wanted_.begin(), wanted_.end(), [&](const Wanted& wanted) {
      return path.empty() ? wanted.name == name
                          : wanted.name.size() == path.size() + name.size() && wanted.name.starts_with(path) &&
                                wanted.name.ends_with(name);
    });
    if (found != wanted_.end()) {
      if (found->seen)
        fail(Exit::kInput, "{}: \"{}\" is a key and a path, which of them holds the text is not clear", record_->where,
             printable(found->name, 40));
      take_column(static_cast<size_t>(found - wanted_.begin()));
      continue;
    }
    std::string below;
    if (nested_ && leads_to_column(below.append(path).append(name).append("."))) {
      space();
      if (peek() == '{') {
        columns(below, depth + 1);
        continue;
      }
      if (peek() == 'n') no_values(below);
    }
    value(depth);
  }
  if (!path.empty()) close_keys(outer);
}

bool JsonColumns::leads_to_column(const std::string& path) const {
  return std::any_of(wanted_.begin(), wanted_.end(),
                     [&](const Wanted& wanted) { return wanted.name.starts_with(path); });
}

// An object that is null has null for all that it would hold.
void JsonColumns::no_values(const std::string& path) {
  for (size_t i = 0; i < wanted_.size(); ++i) {
    if (!wanted_[i].name.starts_with(path)) continue;
    wanted_[i].seen = true;
    if (i < spec_.columns.size()) record_->texts[i].clear();
  }
}

void JsonColumns::take_column(size_t column) {
  Wanted& wanted = wanted_[column];
  wanted.seen = true;
  if (column == spec_.columns.size()) return turns(wanted);
  space();
  // A prompt and its response may be lists of messages.
  if (!spec_.pair() || peek() != '[') return text(wanted.name, record_->texts[column]);
  record_->texts[column].clear();
  turns(wanted);
}

// The turns of the record: those of the prompt are what is asked, those of the response what is answered.
void JsonColumns::assemble() {
  size_t count = 0, lists = 0;
  for (const Wanted& wanted : wanted_) count += wanted.count, lists += wanted.list;
  if (spec_.pair() && lists == 1) {
    const bool prompt = wanted_[0].list;
    const std::string& other = record_->texts[prompt ? 1 : 0];
    if (!other.empty())
      fail(Exit::kInput, "{}: \"{}\" is a list of messages and \"{}\" a text, expected two of a kind", record_->where,
           printable(wanted_[prompt ? 0 : 1].name, 40), printable(wanted_[prompt ? 1 : 0].name, 40));
  }
  record_->turns.resize(count);
  size_t at = 0;
  for (Wanted& wanted : wanted_)
    for (size_t i = 0; i < wanted.count; ++i, ++at) {
      std::swap(record_->turns[at].role, wanted.turns[i].role);
      std::swap(record_->turns[at].content, wanted.turns[i].content);
      record_->turns[at].context = spec_.pair() && &wanted == wanted_.data();
    }
}

void JsonColumns::text(std::string_view what, std::string& out) {
  space();
  out.clear();
  if (peek() == 'n') return literal("null");
  if (peek() == '"') return string(&out);
  const char* const start = at_;
  value(1);
  at_ = start;
  wrong_type("\"" + printable(what, 40) + "\"", "a string");
}

void JsonColumns::turns(Wanted& wanted) {
  space();
  if (peek() == 'n') return literal("null");
  if (peek() != '[') {
    const char* const start = at_;
    value(1);
    at_ = start;
    wrong_type("\"" + printable(wanted.name, 40) + "\"", "an array of {role, content} or {from, value}");
  }
  ++at_;
  wanted.list = true;
  for (; !take(']'); ++wanted.count) {
    if (wanted.count == kMaxTurns) fail(Exit::kInput, "{}: more than {} turns", record_->where, kMaxTurns);
    if (wanted.count > 0) expect(',', "\",\" or \"]\"");
    turn(wanted, wanted.count);
  }
}

void JsonColumns::turn(Wanted& wanted, size_t index) {
  const auto what = [&] { return fmt::format("\"{}\"[{}]", printable(wanted.name, 40), index); };
  space();
  if (peek() != '{') {
    const char* const start = at_;
    value(2);
    at_ = start;
    wrong_type(what(), "{role, content} or {from, value}");
  }
  ++at_;
  if (wanted.turns.size() <= index) wanted.turns.emplace_back();
  Turn& turn = wanted.turns[index];
  // role and content, or from and value as ShareGPT has them.
  std::string_view who, said, null;
  bool tools = false;
  const size_t outer = keys_.size();
  for (bool first = true; !take('}'); first = false) {
    if (!first) expect(',', "\",\" or \"}\"");
    const std::string_view name = key(outer);
    const bool is_role = name == "role" || name == "from", is_content = name == "content" || name == "value";
    if (!is_role && !is_content) {
      space();
      tools |= (name == "tool_calls" || name == "function_call") && (peek() == '{' || (peek() == '[' && !empty_list()));
      value(3);
      continue;
    }
    std::string_view& taken = is_role ? who : said;
    if (!taken.empty())
      fail(Exit::kInput, "{}: {} has \"{}\" and \"{}\", expected one of them", record_->where, what(), taken, name);
    taken = is_role ? (name == "role" ? "role" : "from") : (name == "content" ? "content" : "value");
    if (!turn_text(wanted, index, taken, is_role ? turn.role : turn.content)) null = taken;
  }
  close_keys(outer);
  if (tools)
    fail(Exit::kInput, "{}: {} calls tools (tool_calls), which are not taken; leave such conversations out",
         record_->where, what());
  if (who.empty() || said.empty() || (who == "role") != (said == "content"))
    fail(Exit::kInput, "{}: {} has no \"{}\"", record_->where, what(),
         who.empty() ? (said == "value" ? "from" : "role") : (who == "from" ? "value" : "content"));
  if (!null.empty()) fail(Exit::kInput, "{}: {}.{} is null, expected a string", record_->where, what(), null);
  if (who == "from") name_role(turn.role);
}

// "[" and "]" alone, at the value at hand.
bool JsonColumns::empty_list() const {
  const char* next = at_ + 1;
  while (next < end_ && (*next == ' ' || *next == '\t' || *next == '\r' || *next == '\n')) ++next;
  return next < end_ && *next == ']';
}

// The string at hand; false for null.
bool JsonColumns::turn_text(const Wanted& wanted, size_t index, std::string_view key, std::string& out) {
  space();
  if (peek() == '"') {
    string(&out);
    return true;
  }
  const char* const start = at_;
  value(3);
  if (*start == 'n') return false;
  at_ = start;
  const std::string what = fmt::format("\"{}\"[{}].{}", printable(wanted.name, 40), index, key);
  if (*start == '[')
    fail(Exit::kInput,
         "{}: {} is a list of parts (type text, image, ...), which are not taken; expected a string: join the texts",
         record_->where, what);
  wrong_type(what, "a string");
}

// `depth` containers are open around the value.
void JsonColumns::value(int depth) {
  space();
  switch (peek()) {
    case '{':
      return object(depth);
    case '[':
      return array(depth);
    case '"':
      return string(nullptr);
    case 't':
      return literal("true");
    case 'f':
      return literal("false");
    case 'n':
      return literal("null");
    default:
      return number();
  }
}

void JsonColumns::object(int depth) {
  if (depth >= kMaxJsonDepth) fail(Exit::kInput, "{}: nested more than {} deep", record_->where, kMaxJsonDepth);
  ++at_;
  const size_t outer = keys_.size();
  for (bool first = true; !take('}'); first = false) {
    if (!first) expect(',', "\",\" or \"}\"");
    key(outer);
    value(depth + 1);
  }
  close_keys(outer);
}

void JsonColumns::array(int depth) {
  if (depth >= kMaxJsonDepth) fail(Exit::kInput, "{}: nested more than {} deep", record_->where, kMaxJsonDepth);
  ++at_;
  for (bool first = true; !take(']'); first = false) {
    if (!first) expect(',', "\",\" or \"]\"");
    value(depth + 1);
  }
}

void JsonColumns::literal(std::string_view word) {
  if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) bad(at_, "a value");
  at_ += word.size();
}

void JsonColumns::number() {
  const char* const start = at_;
  const auto digits = [&] {
    const char* const first = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    if (at_ == first) bad(start, "a value");
  };
  if (peek() == '-') ++at_;
  if (peek() == '0')
    ++at_;
  else
    digits();
  if (peek() == '.') {
    ++at_;
    digits();
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    digits();
  }
}

void JsonColumns::string(std::string* out) {
  ++at_;
  if (out != nullptr) out->clear();
  for (;;) {
    const char* const plain = at_;
    at_ = plain_end(at_, end_);
    if (out != nullptr) out->append(plain, at_);
    if (at_ == end_) bad(at_, "a closing quote");
    if (*at_ == '"') {
      ++at_;
      return;
    }
    if (*at_ != '\\') bad(at_, "no control character in a string");
    const char32_t code = escape();
    if (out != nullptr) tokenizer::append_utf8(*out, code);
  }
}

char32_t JsonColumns::hex4() {
  char32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = peek();
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) bad(at_, "four hexadecimal digits");
    code = code << 4 | static_cast<char32_t>(digit);
  }
  return code;
}

char32_t JsonColumns::escape() {
  constexpr std::string_view kShort = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
  const char* const start = at_++;
  const char c = peek();
  if (at_ == end_) bad(at_, "an escape");
  ++at_;
  if (c != 'u') {
    const size_t at = kShort.find(c);
    if (at == std::string_view::npos) bad(start, "an escape of JSON");
    return static_cast<char32_t>(kMeaning[at]);
  }
  const char32_t high = hex4();
  if (high < 0xd800 || high > 0xdfff) return high;
  if (high >= 0xdc00 || end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') bad(start, "a pair of surrogates");
  at_ += 2;
  const char32_t low = hex4();
  if (low < 0xdc00 || low > 0xdfff) bad(start, "a pair of surrogates");
  return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

std::string_view JsonColumns::key(size_t first) {
  space();
  if (peek() != '"') bad(at_, "a key");
  const char* const inside = at_ + 1;
  const char* const behind = plain_end(inside, end_);
  std::string_view name(inside, static_cast<size_t>(behind - inside));
  if (behind < end_ && *behind == '"') {
    at_ = behind + 1;
  } else {
    string(&decoded_.emplace_back());
    name = decoded_.back();
  }
  expect(':', "\":\"");
  if (keys_.size() - first < kFewKeys &&
      std::find(keys_.begin() + static_cast<ptrdiff_t>(first), keys_.end(), name) != keys_.end())
    fail(Exit::kInput, "{}: key \"{}\" stands twice in one object", record_->where, printable(name));
  if (keys_.size() >= kMaxKeys) fail(Exit::kInput, "{}: holds more than {} keys", record_->where, kMaxKeys);
  keys_.push_back(name);
  return name;
}

void JsonColumns::close_keys(size_t first) {
  if (keys_.size() - first > kFewKeys) {
    const auto begin = keys_.begin() + static_cast<ptrdiff_t>(first);
    std::sort(begin, keys_.end());
    if (const auto twice = std::adjacent_find(begin, keys_.end()); twice != keys_.end())
      fail(Exit::kInput, "{}: key \"{}\" stands twice in one object", record_->where, printable(*twice));
  }
  keys_.resize(first);
}

}  // namespace mantissa
