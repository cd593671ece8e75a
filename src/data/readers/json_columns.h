// One line of JSON read in one pass: the wanted columns are decoded, everything else is checked and passed over. The
// grammar is RFC 8259 with base/json.h's rules: nesting at most kMaxJsonDepth deep, no key twice in an object, valid
// UTF-8, nothing behind the value.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/record.h"

namespace mantissa {

class JsonColumns {
 public:
  JsonColumns(const RecordSpec& spec, const DataConfig& config) : spec_(spec), config_(config) {}

  // Fills texts and turns of `record` from the object in `line`; null is no text, and no turns. Errors (Exit::kInput)
  // begin with record.where and count bytes of the line from 1.
  void read(std::string_view line, Record& record);

 private:
  static constexpr size_t kMaxKeys = size_t{1} << 20;  // open at once in a line

  [[noreturn]] void bad(const char* at, std::string_view expected) const;
  [[noreturn]] void wrong_type(std::string_view what, std::string_view expected) const;
  char peek() const { return at_ < end_ ? *at_ : '\0'; }
  void space();
  void expect(char c, std::string_view expected);
  bool take(char c);
  const char* type_name() const;

  void columns();
  void turns();
  void turn(size_t index);
  void value(int depth);
  void object(int depth);
  void array(int depth);
  void number();
  void literal(std::string_view word);
  void string(std::string* out);  // null: passed over
  char32_t escape();
  char32_t hex4();
  // A key of the object whose keys begin at keys_[first], with the colon behind it.
  std::string_view key(size_t first);
  void close_keys(size_t first);
  // A string into `out`, "" for null; `what` and the index name it in messages.
  void text(std::string_view what, std::string& out);

  const RecordSpec spec_;
  const DataConfig config_;
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  Record* record_ = nullptr;
  std::vector<std::string_view> keys_;  // of the open objects, one after the other
  std::deque<std::string> decoded_;     // keys with escapes
  std::vector<bool> seen_;
  size_t turn_count_ = 0;
};

}  // namespace mantissa
