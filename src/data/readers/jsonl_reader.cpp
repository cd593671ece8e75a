#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "data/input.h"
#include "data/readers/readers.h"

namespace mantissa {

void read_jsonl(const std::string& path, const DataConfig& config, Documents& documents) {
  const InputText input = InputText::open(path);
  documents.files.push_back(input.source());
  std::string_view rest = input.text();
  if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);  // byte order mark
  for (int64_t number = 1; !rest.empty() && !documents.full(config); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const Json value = parse_json(line, where);
    if (!value.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", where, value.type_name());
    const auto text = value.find(config.text_key);
    if (text == value.end()) {
      std::vector<std::string> keys;
      for (const auto& item : value.items())
        if (keys.size() < 8) keys.push_back(printable(item.key(), 40));
      fail(Exit::kInput, "{}: no key \"{}\" (data.text_key); found {}", where, config.text_key,
           keys.empty() ? "none" : join(keys, ", "));
    }
    if (!text->is_string())
      fail(Exit::kInput, "{}: \"{}\" is {}, expected a string", where, config.text_key, text->type_name());
    documents.add(text->get_ref<const std::string&>(), config, where);
  }
}

}  // namespace mantissa
