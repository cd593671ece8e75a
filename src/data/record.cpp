#include "data/record.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

// The files of a source, one after the other.
class SourceRecords final : public RecordReader {
 public:
  SourceRecords(const Source& source, const RecordSpec& spec, const DataConfig& config)
      : source_(source), spec_(spec), config_(config) {
    for (const std::string& path : source_.files) {
      sizes_.push_back(size_of(path));
      bytes_ += sizes_.back();
    }
    open();
  }

  bool next(Record& record) override {
    while (reader_ != nullptr) {
      if (reader_->next(record)) return true;
      close();
      {
        const std::lock_guard lock(swap_);
        ++at_;
      }
      open();
    }
    return false;
  }

  double progress() const override {
    const std::lock_guard lock(swap_);
    const double here = reader_ != nullptr ? reader_->share() * static_cast<double>(sizes_[at_]) : 0;
    return bytes_ == 0 ? 1 : std::min(1.0, (static_cast<double>(behind_) + here) / static_cast<double>(bytes_));
  }

  void finish() override { close(); }
  const std::vector<SourceFile>& files() const override { return files_; }
  const SourcePackage& package() const override { return package_; }

 private:
  uint64_t size_of(const std::string& path) const {
    uint64_t bytes = 0;
    if (source_.format == "mds") {
      for (const FolderEntry& entry : list_folder(path))
        if (entry.kind == FolderEntry::Kind::kFile) bytes += file_size(join_path(path, entry.name));
    } else if (source_.format == "dictd") {
      for (const std::string& file : dictd_files(path)) bytes += file_size(file);
    } else {
      bytes = file_size(path);
    }
    return bytes;
  }

  void open() {
    if (at_ == source_.files.size()) return;
    std::unique_ptr<FileRecords> opened = open_file(source_.files[at_]);
    const std::lock_guard lock(swap_);
    reader_ = std::move(opened);
  }

  std::unique_ptr<FileRecords> open_file(const std::string& path) const {
    if (source_.format == "text") return open_text(path, config_);
    if (source_.format == "jsonl") return open_jsonl(path, spec_, config_);
    if (source_.format == "dictd") return open_dictd(path, config_);
    if (source_.format == "parquet") return open_parquet(path, spec_, config_);
    if (source_.format == "mds") return open_mds_text(path, spec_, config_);
    fail(Exit::kInternal, "{}: no reader of {} records", path, source_.format);
  }

  void close() {
    if (reader_ == nullptr) return;
    const size_t first = files_.size();
    reader_->finish(files_);
    {
      const std::lock_guard lock(swap_);
      reader_.reset();
      behind_ += sizes_[at_];
    }
    for (size_t i = first; i < files_.size(); ++i) check_source_record(files_[i], i == 0);
  }

  // SOURCE.json beside the data: {"name", "version", "<file name>": "<sha256>", ...}. A file that differs is refused.
  void check_source_record(const SourceFile& file, bool names) {
    const std::filesystem::path place(file.path);
    const std::string path =
        place.has_parent_path() ? (place.parent_path() / "SOURCE.json").string() : std::string("SOURCE.json");
    if (!exists(path)) return;
    const Json root = read_json(path, uint64_t{1} << 20);
    if (!root.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", path, root.type_name());
    const auto field = [&](const std::string& key) {
      const auto at = root.find(key);
      return at != root.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (names) package_ = {field("name"), field("version")};
    const std::string expected = field(place.filename().string());
    if (!expected.empty() && expected != file.sha256)
      fail(Exit::kInput, "{}: has SHA-256 {}, expected {} ({})", file.path, file.sha256, expected, path);
  }

  const Source source_;
  const RecordSpec spec_;
  const DataConfig config_;
  std::vector<uint64_t> sizes_;  // bytes of each of source_.files
  uint64_t bytes_ = 0, behind_ = 0;
  mutable std::mutex swap_;              // of behind_, reader_ and at_, which progress() sees from another thread
  std::unique_ptr<FileRecords> reader_;  // of source_.files[at_]; null at the end
  size_t at_ = 0;
  std::vector<SourceFile> files_;
  SourcePackage package_;
};

}  // namespace

size_t Record::text_bytes() const {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  for (const Turn& turn : turns) bytes += turn.content.size();
  return bytes;
}

std::unique_ptr<RecordReader> open_records(const Source& source, const RecordSpec& spec, const DataConfig& config) {
  check(!source.tokens, "{} holds tokens, not records", source.format);
  if (source.format != "jsonl" && source.format != "parquet" && !spec.messages.empty())
    fail(Exit::kUsage, "data.messages_key \"{}\": {} files have no column of messages; JSONL and Parquet do",
         spec.messages, source.format);
  if ((source.format == "text" || source.format == "dictd") && spec.columns.size() != 1)
    fail(Exit::kUsage, "data.prompt_key and data.response_key: {} files have no columns", source.format);
  return std::make_unique<SourceRecords>(source, spec, config);
}

}  // namespace mantissa
