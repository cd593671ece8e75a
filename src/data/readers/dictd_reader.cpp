#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/input.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

// A number in dictd's base 64, most significant digit first; false on another character, none, or more than 2^60.
bool parse_digits(std::string_view text, uint64_t& value) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  value = 0;
  if (text.empty() || text.size() > 10) return false;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    value = value * 64 + digit;
  }
  return true;
}

struct Paths {
  std::string index, data;
};

Paths paths_of(const std::string& path) {
  std::string stem = path;
  for (const char* ending : {".index", ".dict.dz", ".dict"})
    if (stem.ends_with(ending)) {
      stem.resize(stem.size() - std::strlen(ending));
      break;
    }
  const std::string packed = stem + ".dict.dz";
  return {stem + ".index", exists(packed) ? packed : stem + ".dict"};
}

struct Entry {
  uint64_t offset, length;
  int64_t line;        // of the index
  bool about = false;  // a headword from "00-" on names it
};

std::vector<Entry> read_index(const InputText& index, const std::string& path, uint64_t data_size) {
  std::map<std::pair<uint64_t, uint64_t>, Entry> entries;
  std::string_view rest = index.text();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::vector<std::string> fields = split(rest.substr(0, end), '\t');
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    Entry entry{.line = number};
    if (fields.size() < 3 || !parse_digits(fields[1], entry.offset) || !parse_digits(fields[2], entry.length))
      fail(Exit::kInput, "{}:{}: expected headword, offset and length in base64 digits, parted by tabs", path, number);
    if (entry.offset > data_size || entry.length > data_size - entry.offset)
      fail(Exit::kInput, "{}:{}: entry at {} of {} bytes passes the end of the data ({} bytes)", path, number, entry.offset,
           entry.length, data_size);
    Entry& kept = entries.try_emplace({entry.offset, entry.length}, entry).first->second;
    kept.about = kept.about || fields[0].starts_with("00-") || fields[0].starts_with("00database");
  }
  std::vector<Entry> list;
  for (const auto& [place, entry] : entries) list.push_back(entry);
  return list;
}

}  // namespace

void read_dictd(const std::string& path, const DataConfig& config, Documents& documents) {
  const Paths paths = paths_of(path);
  const InputText index = InputText::open(paths.index), data = InputText::open(paths.data);
  documents.files.push_back(index.source());
  documents.files.push_back(data.source());
  const std::vector<Entry> entries = read_index(index, paths.index, data.text().size());
  for (const Entry& entry : entries) {
    if (entry.about) continue;
    if (documents.full(config)) break;
    const std::string_view text = data.text().substr(entry.offset, entry.length);
    const std::string where = fmt::format("{}:{}", paths.index, entry.line);
    if (config.dictd_text == "prose")
      documents.add(dictd_prose(text), config, where);
    else if (config.dictd_text == "layout")
      documents.add(dictd_layout(text), config, where);
    else
      documents.add(trim(text), config, where);
  }
}

}  // namespace mantissa
