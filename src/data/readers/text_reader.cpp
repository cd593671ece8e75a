#include <fmt/core.h>

#include "base/text.h"
#include "data/input.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

// The line at the start of `rest`, without its end, which it also takes off `rest`.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

void read_text_file(const std::string& path, const DataConfig& config, Documents& documents) {
  const InputText input = InputText::open(path);
  documents.files.push_back(input.source());
  std::string_view rest = input.text();
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);  // byte order mark
  const bool by_line = config.document_separator == "line", whole = config.document_separator == "none";
  std::string document;
  int64_t line_number = 0, first_line = 1;
  const auto close = [&] {
    const std::string_view text = trim(document);
    if (!text.empty()) documents.add(text, config, fmt::format("{}:{}", path, first_line));
    document.clear();
    first_line = line_number + 1;
  };
  while (!rest.empty() && !documents.full(config)) {
    const std::string_view line = take_line(rest);
    ++line_number;
    if (!whole && !by_line && trim(line).empty()) {
      close();
      continue;
    }
    document += line;
    document += '\n';
    if (by_line) close();
  }
  if (!documents.full(config)) close();
}

}  // namespace mantissa
