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

void JsonColumns::bad(const char* at, std::string_view expected) const {
  const std::string found =
      at < end_ ? "\"" + printable(std::string_view(at, std::min<size_t>(12, static_cast<size_t>(end_ - at)))) + "\""
                : "the end of the line";
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
  turn_count_ = 0;
  space();
  if (peek() != '{') {
    value(0);
    at_ = begin_;
    space();
    fail(Exit::kInput, "{}: is {}, expected an object", record.where, type_name());
  }
  columns();
  record.turns.resize(turn_count_);
  if (config_.tokenizer != "bytes") return;
  for (const std::string& text : record.texts) check_no_zero(text, record.where);
  for (const Turn& turn : record.turns) check_no_zero(turn.content, record.where);
}

void JsonColumns::columns() {
  const size_t wanted = spec_.columns.size();
  seen_.assign(wanted + 1, false);
  ++at_;
  for (bool first = true; !take('}'); first = false) {
    if (!first) expect(',', "\",\" or \"}\"");
    const std::string_view name = key(0);
    const size_t column =
        static_cast<size_t>(std::find(spec_.columns.begin(), spec_.columns.end(), name) - spec_.columns.begin());
    if (column < wanted) {
      seen_[column] = true;
      text(name, record_->texts[column]);
    } else if (!spec_.messages.empty() && name == spec_.messages) {
      seen_[wanted] = true;
      turns();
    } else {
      value(1);
    }
  }
  space();
  if (at_ != end_) bad(at_, "the end of the line");
  for (size_t i = 0; i < wanted + (spec_.messages.empty() ? 0 : 1); ++i)
    if (!seen_[i])
      no_column(record_->where, i < wanted ? spec_.columns[i] : spec_.messages, config_, {keys_.begin(), keys_.end()});
  close_keys(0);
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

void JsonColumns::turns() {
  space();
  if (peek() == 'n') return literal("null");
  if (peek() != '[') {
    const char* const start = at_;
    value(1);
    at_ = start;
    wrong_type("\"" + printable(spec_.messages, 40) + "\"", "an array of {role, content}");
  }
  ++at_;
  for (; !take(']'); ++turn_count_) {
    if (turn_count_ == kMaxTurns) fail(Exit::kInput, "{}: more than {} turns", record_->where, kMaxTurns);
    if (turn_count_ > 0) expect(',', "\",\" or \"]\"");
    turn(turn_count_);
  }
}

void JsonColumns::turn(size_t index) {
  const auto what = [&] { return fmt::format("\"{}\"[{}]", printable(spec_.messages, 40), index); };
  space();
  if (peek() != '{') {
    const char* const start = at_;
    value(2);
    at_ = start;
    wrong_type(what(), "{role, content}");
  }
  ++at_;
  if (record_->turns.size() <= index) record_->turns.emplace_back();
  Turn& turn = record_->turns[index];
  bool role = false, content = false;
  const size_t outer = keys_.size();
  for (bool first = true; !take('}'); first = false) {
    if (!first) expect(',', "\",\" or \"}\"");
    const std::string_view name = key(outer);
    if (name != "role" && name != "content") {
      value(3);
      continue;
    }
    (name == "role" ? role : content) = true;
    space();
    if (peek() != '"') {
      const char* const start = at_;
      value(3);
      at_ = start;
      wrong_type(fmt::format("{}.{}", what(), name), "a string");
    }
    string(name == "role" ? &turn.role : &turn.content);
  }
  close_keys(outer);
  if (!role || !content) fail(Exit::kInput, "{}: {} has no \"{}\"", record_->where, what(), role ? "content" : "role");
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
