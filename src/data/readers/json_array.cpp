#include "data/readers/json_array.h"

#include "base/error.h"
#include "base/text.h"

namespace mantissa {
namespace {

constexpr std::string_view kMark = "\xef\xbb\xbf";
constexpr std::string_view kSpaces = " \t\r\n";

}  // namespace

JsonArray::JsonArray(const std::string& path, size_t most) : input_(path), most_(most) {
  rest_ = input_.next();
  if (rest_.starts_with(kMark)) rest_.remove_prefix(kMark.size());
}

void JsonArray::bad(std::string_view expected) const {
  fail(Exit::kInput, "{}:{}: behind record {} of the array: expected {}, found {}", input_.path(), lines_, number_,
       expected, rest_.empty() ? "the end of the file" : "\"" + printable(rest_.substr(0, 12)) + "\"");
}

bool JsonArray::more() {
  if (rest_.empty()) rest_ = input_.next();
  return !rest_.empty();
}

bool JsonArray::space() {
  while (more()) {
    if (kSpaces.find(rest_[0]) == std::string_view::npos) return true;
    lines_ += rest_[0] == '\n';
    rest_.remove_prefix(1);
  }
  return false;
}

bool JsonArray::next(std::string_view& element) {
  if (ended_) return false;
  if (!begun_) {
    if (!space() || rest_[0] != '[') bad("\"[\"");
    rest_.remove_prefix(1);
    begun_ = true;
    if (space() && rest_[0] == ']') {
      finish();
      return false;
    }
  } else {
    if (!space() || (rest_[0] != ',' && rest_[0] != ']')) bad("\",\" or \"]\"");
    if (rest_[0] == ']') {
      finish();
      return false;
    }
    rest_.remove_prefix(1);
  }
  if (!space() || rest_[0] == ',' || rest_[0] == ']') bad("a record");
  take();
  element = trim(element_);
  return true;
}

// To the comma or bracket that no string, object or array holds.
void JsonArray::take() {
  element_.clear();
  ++number_;
  line_ = lines_;
  int64_t open = 0;
  bool quoted = false, escaped = false;
  while (more()) {
    size_t i = 0;
    bool ends = false;
    for (; i < rest_.size() && !ends; ++i) {
      const char c = rest_[i];
      lines_ += c == '\n';
      if (quoted) {
        quoted = escaped || c != '"';
        escaped = !escaped && c == '\\';
        continue;
      }
      if (c == '"')
        quoted = true;
      else if (c == '{' || c == '[')
        ++open;
      else if (c == '}' || c == ']')
        ends = open-- == 0;
      else if (c == ',')
        ends = open == 0;
    }
    const size_t taken = ends ? i - 1 : i;
    if (taken > most_ - element_.size())
      fail(Exit::kInput, "{}:{}: record {} of the array has more than {} MiB", input_.path(), line_, number_,
           most_ >> 20);
    element_ += rest_.substr(0, taken);
    rest_.remove_prefix(taken);
    if (ends) return;
  }
  fail(Exit::kInput, "{}:{}: the file ends within record {} of the array", input_.path(), line_, number_);
}

void JsonArray::finish() {
  rest_.remove_prefix(1);
  ended_ = true;
  if (space()) bad("the end of the file");
}

bool begins_json_array(const std::string& path) {
  InputStream input(path);
  std::string_view piece = input.next();
  if (piece.starts_with(kMark)) piece.remove_prefix(kMark.size());
  const size_t first = piece.find_first_not_of(kSpaces);
  return first != std::string_view::npos && piece[first] == '[';
}

}  // namespace mantissa
