#include <atomic>

#include "base/error.h"
#include "base/sha256.h"
#include "data/mds/reader.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

class MdsRecords final : public FileRecords {
 public:
  MdsRecords(const std::string& folder, const RecordSpec& spec, const DataConfig& config)
      : config_(config), folder_(mds::Folder::open(folder)) {
    std::vector<std::string> names;
    for (const mds::Column& column : folder_.columns()) names.push_back(column.name);
    for (const std::string& name : spec.columns) {
      if (folder_.find(name) < 0) no_column(folder, name, config_, names);
      columns_.push_back(folder_.find(name));
    }
  }

  bool next(Record& record) override {
    while (!open_ || sample_ == shard_.samples()) {
      const size_t following = open_ ? at_ + 1 : at_;
      if (following == folder_.shards().size()) return false;
      shard_ = folder_.open_shard(following);
      at_ = following, sample_ = 0, open_ = true;
    }
    record.texts.resize(columns_.size());
    record.turns.clear();
    const auto texts = [&] {
      for (size_t i = 0; i < columns_.size(); ++i) {
        record.where = shard_.where(sample_, columns_[i]);
        record.texts[i] = shard_.text(sample_, columns_[i]);
        check_text(record.texts[i], config_, record.where);
      }
    };
    shard_.read(texts, [this] { return fmt::format("sample {}", sample_); });
    ++sample_, ++read_;
    return true;
  }

  double share() const override {
    return folder_.samples() == 0 ? 1 : static_cast<double>(read_.load()) / static_cast<double>(folder_.samples());
  }

  // index.json and the shards that were opened.
  void finish(std::vector<SourceFile>& files) override {
    files.push_back(folder_.index());
    for (size_t i = 0; open_ && i <= at_; ++i) {
      const mds::ShardEntry& shard = folder_.shards()[i];
      const std::string raw = join_path(folder_.path(), shard.raw.basename);
      const std::string path = exists(raw) ? raw : folder_.path_of(shard.zip);
      files.push_back({path, file_size(path), sha256_file(path)});
    }
  }

 private:
  const DataConfig config_;
  const mds::Folder folder_;
  std::vector<int> columns_;
  mds::Shard shard_;  // number at_, once open_
  bool open_ = false;
  size_t at_ = 0;
  int64_t sample_ = 0;
  std::atomic<int64_t> read_{0};
};

}  // namespace

std::unique_ptr<FileRecords> open_mds_text(const std::string& folder, const RecordSpec& spec,
                                           const DataConfig& config) {
  return std::make_unique<MdsRecords>(folder, spec, config);
}

}  // namespace mantissa
