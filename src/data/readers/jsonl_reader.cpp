#include <fmt/format.h>

#include "base/text.h"
#include "data/readers/json_array.h"
#include "data/readers/json_columns.h"
#include "data/readers/lines.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

class JsonlRecords final : public FileRecords {
 public:
  JsonlRecords(const std::string& path, const RecordSpec& spec, const DataConfig& config)
      : lines_(path, kMaxLineBytes, "; JSON lines hold one object a line"), columns_(spec, config, "line") {}

  bool next(Record& record) override {
    std::string_view line;
    do {
      if (!lines_.next(line)) return false;
    } while (trim(line).empty());
    set_where(record.where, lines_.input().path(), lines_.number());
    columns_.read(line, record);
    return true;
  }

  double share() const override { return lines_.input().share(); }
  void finish(std::vector<SourceFile>& files) override { files.push_back(lines_.input().source()); }

 private:
  LineReader lines_;
  JsonColumns columns_;
};

// A file that is one array of objects.
class JsonArrayRecords final : public FileRecords {
 public:
  JsonArrayRecords(const std::string& path, const RecordSpec& spec, const DataConfig& config)
      : array_(path, kMaxLineBytes), columns_(spec, config, "record") {}

  bool next(Record& record) override {
    std::string_view element;
    if (!array_.next(element)) return false;
    set_where(record.where, array_.input().path(), array_.line());
    record.where += fmt::format(": record {}", array_.number());
    columns_.read(element, record);
    return true;
  }

  double share() const override { return array_.input().share(); }
  void finish(std::vector<SourceFile>& files) override { files.push_back(array_.input().source()); }

 private:
  JsonArray array_;
  JsonColumns columns_;
};

}  // namespace

std::unique_ptr<FileRecords> open_jsonl(const std::string& path, const RecordSpec& spec, const DataConfig& config) {
  if (begins_json_array(path)) return std::make_unique<JsonArrayRecords>(path, spec, config);
  return std::make_unique<JsonlRecords>(path, spec, config);
}

}  // namespace mantissa
