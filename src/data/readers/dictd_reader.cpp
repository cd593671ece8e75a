#include <algorithm>
#include <atomic>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/input.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

// A number in dictd's base 64, most significant digit first; false on another character, none, or more than 2^60.
bool parse_digits(std::string_view text, uint64_t& value) {
  value = 0;
  if (text.empty() || text.size() > 10) return false;
  for (const char c : text) {
    uint64_t digit = 0;
    if (c >= 'A' && c <= 'Z')
      digit = static_cast<uint64_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      digit = static_cast<uint64_t>(c - 'a') + 26;
    else if (c >= '0' && c <= '9')
      digit = static_cast<uint64_t>(c - '0') + 52;
    else if (c == '+' || c == '/')
      digit = c == '+' ? 62 : 63;
    else
      return false;
    value = value * 64 + digit;
  }
  return true;
}

struct Paths {
  std::string index, data;
};

Paths paths_of(const std::string& path) {
  std::string_view name = path;
  for (const char* ending : {".index", ".dict.dz", ".dict"})
    if (name.ends_with(ending)) {
      name.remove_suffix(std::strlen(ending));
      break;
    }
  const std::string stem(name);
  const std::string packed = stem + ".dict.dz";
  return {stem + ".index", exists(packed) ? packed : stem + ".dict"};
}

struct Entry {
  uint64_t offset, length;
  int64_t line;        // of the index
  bool about = false;  // a headword from "00-" on names it
};

// The entries in the order of the data; a place that several headwords name is one entry.
std::vector<Entry> read_index(std::string_view rest, const std::string& path, uint64_t data_size) {
  std::vector<Entry> entries;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    Entry entry{.line = number, .about = line.starts_with("00-") || line.starts_with("00database")};
    const size_t first = line.find('\t');
    const size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    // A fourth field, the headword as it is to be shown, is allowed.
    if (second == std::string_view::npos || !parse_digits(line.substr(first + 1, second - first - 1), entry.offset) ||
        !parse_digits(line.substr(second + 1, line.find('\t', second + 1) - second - 1), entry.length))
      fail(Exit::kInput, "{}:{}: expected headword, offset and length in base64 digits, parted by tabs", path, number);
    if (entry.offset > data_size || entry.length > data_size - entry.offset)
      fail(Exit::kInput, "{}:{}: entry of {} bytes at {} passes the end of the data ({} bytes)", path, number,
           entry.length, entry.offset, data_size);
    entries.push_back(entry);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.offset, a.length, a.line) < std::tie(b.offset, b.length, b.line);
  });
  std::vector<Entry> unique;
  for (const Entry& entry : entries) {
    if (!unique.empty() && unique.back().offset == entry.offset && unique.back().length == entry.length)
      unique.back().about = unique.back().about || entry.about;
    else
      unique.push_back(entry);
  }
  return unique;
}

class DictdRecords final : public FileRecords {
 public:
  DictdRecords(const std::string& path, const DataConfig& config) : config_(config), paths_(paths_of(path)), files_(2) {
    const std::string index = read_input(paths_.index, files_[0]);
    data_ = read_input(paths_.data, files_[1]);
    entries_ = read_index(index, paths_.index, data_.size());
  }

  bool next(Record& record) override {
    while (at_ < entries_.size() && entries_[at_].about) ++at_;
    if (at_ == entries_.size()) return false;
    const Entry& entry = entries_[at_++];
    const std::string_view text = std::string_view(data_).substr(entry.offset, entry.length);
    record.texts.resize(1);
    record.turns.clear();
    if (config_.dictd_text == "prose")
      record.texts[0] = dictd_prose(text);
    else if (config_.dictd_text == "layout")
      record.texts[0] = dictd_layout(text);
    else
      record.texts[0] = trim(text);
    set_where(record.where, paths_.index, entry.line);
    check_text(record.texts[0], config_, record.where);
    return true;
  }

  double share() const override {
    return entries_.empty() ? 1 : static_cast<double>(at_.load()) / static_cast<double>(entries_.size());
  }
  void finish(std::vector<SourceFile>& files) override { files.insert(files.end(), files_.begin(), files_.end()); }

 private:
  const DataConfig config_;
  const Paths paths_;
  std::vector<SourceFile> files_;
  std::string data_;
  std::vector<Entry> entries_;
  std::atomic<size_t> at_{0};
};

}  // namespace

std::unique_ptr<FileRecords> open_dictd(const std::string& path, const DataConfig& config) {
  return std::make_unique<DictdRecords>(path, config);
}

std::vector<std::string> dictd_files(const std::string& path) {
  const Paths paths = paths_of(path);
  return {paths.index, paths.data};
}

}  // namespace mantissa
