// What every reader holds its text and its messages to.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "data/readers/readers.h"
#include "data/tokenizer/utf8.h"

namespace mantissa {

void check_no_zero(std::string_view text, const std::string& where) {
  if (const size_t at = text.find('\0'); at != std::string_view::npos)
    fail(Exit::kInput,
         "{}: holds a byte 0 (byte {} of the document), which separates documents; is this UTF-16 or no text?", where,
         at);
}

void check_text(std::string_view text, const DataConfig& config, const std::string& where) {
  if (config.tokenizer == "bytes") return check_no_zero(text, where);
  if (const size_t good = tokenizer::find_ill_formed(text); good != text.size())
    fail(Exit::kInput, "{}: not UTF-8 at byte {} of the document: {}", where, good, printable(text.substr(good, 4)));
}

void name_role(std::string& role) {
  if (role == "human")
    role = "user";
  else if (role == "gpt")
    role = "assistant";
}

void set_where(std::string& where, std::string_view path, int64_t number) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  where.assign(path);
  where += ':';
  where.append(digits, end);
}

void no_column(const std::string& where, const std::string& column, const DataConfig& config,
               std::vector<std::string> found) {
  constexpr size_t kShown = 8;
  std::sort(found.begin(), found.end());
  const bool more = found.size() > kShown;
  if (more) found.resize(kShown);
  for (std::string& name : found) name = printable(name, 40);
  const char* key = column == config.messages_key   ? "messages_key"
                    : !config.fine_tuning()         ? "text_key"
                    : column == config.response_key ? "response_key"
                                                    : "prompt_key";
  fail(Exit::kInput, "{}: no key \"{}\" (data.{}); found {}{}", where, printable(column, 40), key,
       found.empty() ? "none" : join(found, ", "), more ? ", ..." : "");
}

}  // namespace mantissa
