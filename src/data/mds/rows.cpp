#include "data/mds/rows.h"

#include <algorithm>

#include "base/error.h"
#include "data/mds/prepared.h"
#include "data/mds/row_layout.h"
#include "data/token_files/row_fill.h"

namespace mantissa::mds {
namespace {

constexpr int32_t kRowsToLearnFrom = 64;
constexpr int64_t kMaxSampleTokens = int64_t{1} << 24;  // of rows to be packed anew

// A folder with what its rows need.
struct Opened {
  Folder folder;
  RowLayout layout;
  bool described = false;
  Prepared prepared;  // where described
};

Opened open_folder(const std::string& path, const TokenOptions& options) {
  Folder folder = Folder::open(path);
  RowLayout layout(folder, options);
  Opened opened{std::move(folder), std::move(layout), false, {}};
  opened.described = read_prepared(path, opened.prepared);
  if (!opened.described) return opened;
  const Prepared& prepared = opened.prepared;
  const std::string name = join_path(path, kPreparedName);
  if (prepared.rows != opened.folder.samples())
    fail(Exit::kInput, "{}: says {} rows, index.json {}", name, prepared.rows, opened.folder.samples());
  if (prepared.labels != opened.layout.labels())
    fail(Exit::kInput, "{}: says labels {}, index.json has {}", name, prepared.labels,
         opened.layout.labels() ? "them" : "none");
  if (options.vocab_size > 0 && prepared.vocab_size > options.vocab_size)
    fail(Exit::kUsage, "{}: the rows were made with a vocabulary of {} ({}), the model's has {} (model.vocab_size)",
         name, prepared.vocab_size, prepared.tokenizer, options.vocab_size);
  return opened;
}

int64_t vocabulary(const Opened& opened, const TokenOptions& options) {
  if (options.vocab_size > 0) return options.vocab_size;
  return opened.described ? opened.prepared.vocab_size : vocabulary_of(opened.layout.ids_type());
}

// Notes of several folders, each once.
void add_notes(const Opened& opened, std::vector<std::string>& notes) {
  for (const std::string& note : opened.layout.notes())
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

// Compressed shards that have no raw file beside them are unpacked into memory: bounded before the first one is.
uint64_t unpacked_bytes(const Folder& folder) {
  uint64_t total = 0;
  for (const ShardEntry& shard : folder.shards())
    if (!shard.compression.empty() && !exists(join_path(folder.path(), shard.raw.basename))) total += shard.raw.bytes;
  return total;
}

class MdsRows : public RowSource {
 public:
  MdsRows(const std::vector<std::string>& folders, const TokenOptions& options)
      : sequence_length_(options.sequence_length) {
    uint64_t unpacked = 0;
    for (const std::string& path : folders) {
      folders_.push_back(open_folder(path, options));
      Opened& opened = folders_.back();
      vocab_size_ = std::max(vocab_size_, vocabulary(opened, options));
      unpacked += unpacked_bytes(opened.folder);
      if (unpacked > kMaxUnpackedRows)
        fail(Exit::kInput,
             "{}: the compressed shards unpack to more than {} bytes; training maps uncompressed ones: run `mantissa "
             "prepare` over the folder, or unpack it",
             path, kMaxUnpackedRows);
    }
    for (size_t f = 0; f < folders_.size(); ++f) open_shards(f);
    check_eos(options.eos, vocab_size_);
    if (rows() == 0) fail(Exit::kInput, "{}: holds no rows", folders_[0].folder.path());
    statistics_ = statistics_of();
  }

  int64_t rows() const override { return begins_.back(); }
  int64_t sequence_length() const override { return sequence_length_; }
  int64_t vocab_size() const override { return vocab_size_; }
  const RowStatistics& statistics() const override { return statistics_; }
  const std::vector<Opened>& folders() const { return folders_; }

  void append_row(int64_t row, Batch& batch) const override { append(row, batch); }

 private:
  struct Place {
    Shard shard;
    size_t folder;
  };

  int64_t append(int64_t row, Batch& batch) const {
    check(row >= 0 && row < rows(), "row {} of {}", row, rows());
    const auto at = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), row) - begins_.begin()) - 1;
    const Place& place = places_[at];
    const int64_t sample = row - begins_[at];
    return place.shard.read(
        [&] { return folders_[place.folder].layout.append(place.shard, sample, sequence_length_, vocab_size_, batch); },
        [&] { return fmt::format("row {} (sample {})", row, sample); });
  }

  void open_shards(size_t f) {
    Opened& opened = folders_[f];
    bool learned = false, checked = false;
    for (size_t s = 0; s < opened.folder.shards().size(); ++s) {
      Shard shard = opened.folder.open_shard(s);
      if (shard.samples() == 0) continue;
      const auto first_rows = [] { return "its first rows"; };
      if (!learned)
        learned = shard.read([&] { return opened.layout.learn_labels(shard, kRowsToLearnFrom); }, first_rows);
      if (!checked) {
        const int64_t length = shard.read([&] { return opened.layout.length(shard, 0); }, first_rows);
        if (length != sequence_length_)
          fail(Exit::kUsage,
               "{}: rows of {} tokens; set data.sequence_length to {} (found {}), or prepare the data anew",
               shard.name(), length, length, sequence_length_);
        checked = true;
      }
      begins_.push_back(begins_.back() + shard.samples());
      places_.push_back({std::move(shard), f});
    }
  }

  // What mantissa.json says where every folder has one, else measured.
  RowStatistics statistics_of() {
    RowStatistics sum;
    if (std::all_of(folders_.begin(), folders_.end(), [](const Opened& opened) { return opened.described; })) {
      for (const Opened& opened : folders_) {
        const RowStatistics& one = opened.prepared.statistics;
        sum.segments += one.segments, sum.padding += one.padding, sum.labels += one.labels;
        sum.most_segments = std::max(sum.most_segments, one.most_segments);
        sum.squared_lengths += one.squared_lengths;
        sum.sampled |= one.sampled;
      }
      return sum;
    }
    return measure(rows(), [&](int64_t row, Batch& batch) { return append(row, batch); });
  }

  int64_t sequence_length_, vocab_size_ = 0;
  std::vector<Opened> folders_;
  std::vector<Place> places_;
  std::vector<int64_t> begins_ = {0};  // first row of each shard, and the end
  RowStatistics statistics_;
};

class MdsDocuments : public DocumentSource {
 public:
  MdsDocuments(const std::vector<std::string>& folders, const TokenOptions& options) : options_(options) {
    for (const std::string& path : folders) {
      folders_.push_back(open_folder(path, options));
      files_.push_back(folders_.back().folder.index());
      samples_ += folders_.back().folder.samples();
      vocab_size_ = std::max(vocab_size_, vocabulary(folders_.back(), options));
    }
  }

  bool next(EncodedDocument& document) override {
    for (;;) {
      while (segment_ + 1 >= batch_.segments.size())
        if (!next_sample()) return false;
      const auto begin = batch_.segments[segment_], end = batch_.segments[segment_ + 1];
      ++segment_;
      const bool masked = folders_[folder_].layout.labels();
      if (end > real_) continue;
      document.ids.assign(batch_.ids.begin() + begin, batch_.ids.begin() + end);
      document.learned.clear();
      if (!masked) return true;
      bool any = false;
      document.learned.resize(document.ids.size());
      for (int32_t i = begin + 1; i < end; ++i) {
        document.learned[static_cast<size_t>(i - begin)] = batch_.labels[static_cast<size_t>(i) - 1] != kIgnoredLabel;
        any |= document.learned[static_cast<size_t>(i - begin)] != 0;
      }
      if (any) return true;  // else it is padding
    }
  }

  double progress() const override {
    return samples_ > 0 ? static_cast<double>(read_) / static_cast<double>(samples_) : 1;
  }
  int64_t vocab_size() const override { return vocab_size_; }
  const std::vector<SourceFile>& files() const override { return files_; }

 private:
  // Reads the next sample into batch_; false behind the last one.
  bool next_sample() {
    while (folder_ < folders_.size()) {
      Opened& opened = folders_[folder_];
      if (open_ && sample_ < current_.samples()) {
        batch_.clear();
        segment_ = 0;
        current_.read([&] { read_sample(opened); }, [this] { return fmt::format("sample {}", sample_); });
        ++sample_, ++read_;
        return true;
      }
      open_ = shard_ < opened.folder.shards().size();
      if (open_) {
        current_ = opened.folder.open_shard(shard_++);
        sample_ = 0;
        if (!learned_)
          learned_ = current_.read([&] { return opened.layout.learn_labels(current_, kRowsToLearnFrom); },
                                   [] { return "its first rows"; });
      } else {
        ++folder_, shard_ = 0, learned_ = false;
      }
    }
    return false;
  }

  void read_sample(const Opened& opened) {
    const int64_t length = opened.layout.length(current_, sample_);
    if (length < 1 || length > kMaxSampleTokens)
      fail(Exit::kInput, "{}: sample {} holds {} tokens, expected 1 to {}", current_.name(), sample_, length,
           kMaxSampleTokens);
    real_ = length - opened.layout.append(current_, sample_, length, vocabulary(opened, options_), batch_);
  }

  TokenOptions options_;
  std::vector<Opened> folders_;
  std::vector<SourceFile> files_;
  int64_t samples_ = 0, read_ = 0, vocab_size_ = 0;
  size_t folder_ = 0, shard_ = 0, segment_ = 0;
  bool open_ = false, learned_ = false;
  Shard current_;
  int64_t sample_ = 0, real_ = 0;
  Batch batch_;
};

}  // namespace

TokenSource open_rows(const std::vector<std::string>& folders, const TokenOptions& options) {
  check(options.sequence_length > 0 && !folders.empty(), "{} folders, rows of {} tokens", folders.size(),
        options.sequence_length);
  auto rows = std::make_unique<MdsRows>(folders, options);
  TokenSource source;
  for (const Opened& opened : rows->folders()) {
    source.files.push_back(opened.folder.index());
    add_notes(opened, source.notes);
    source.segments_by = opened.layout.segments_by();
  }
  if (source.segments_by == "eos")
    if (std::string note = missing_eos(options.eos, *rows); !note.empty()) source.notes.push_back(std::move(note));
  source.rows = std::move(rows);
  return source;
}

std::unique_ptr<DocumentSource> open_documents(const std::vector<std::string>& folders, const TokenOptions& options) {
  return std::make_unique<MdsDocuments>(folders, options);
}

bool has_tokens(const std::string& folder) {
  const Folder opened = Folder::open(folder);
  return opened.find("tokens") >= 0 || opened.find("input_ids") >= 0;
}

}  // namespace mantissa::mds
