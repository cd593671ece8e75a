// One object of JSON read in one pass: the wanted columns are decoded, everything else is checked and passed over. The
// grammar is RFC 8259 with base/json.h's rules: nesting at most kMaxJsonDepth deep, no key twice in an object, valid
// UTF-8, nothing behind the value. A column's name with dots names a key of that name, or a path through objects.
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
  // `unit` is what read() is given, for messages: "line".
  JsonColumns(const RecordSpec& spec, const DataConfig& config, std::string_view unit);

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

  struct Wanted {
    std::string name;
    std::vector<Turn> turns;  // buffers, of which the first `count` are this record's
    size_t count = 0;
    bool seen = false, list = false;  // list: holds turns
  };

  void columns(const std::string& path, int depth);
  void take_column(size_t column);
  bool leads_to_column(const std::string& path) const;
  void no_values(const std::string& path);
  void assemble();
  void turns(Wanted& wanted);
  void turn(Wanted& wanted, size_t index);
  bool empty_list() const;
  bool turn_text(const Wanted& wanted, size_t index, std::string_view key, std::string& out);
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
  const std::string unit_;
  std::vector<Wanted> wanted_;  // the columns, then messages
  bool nested_ = false;         // some name has a dot
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  Record* record_ = nullptr;
  std::vector<std::string_view> keys_;  // of the open objects, one after the other
  std::deque<std::string> decoded_;     // keys with escapes
};

}  // namespace mantissa
