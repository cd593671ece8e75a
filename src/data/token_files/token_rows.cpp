#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/mapped_range.h"
#include "data/token_files/row_fill.h"
#include "data/token_files/token_file.h"
#include "data/token_files/token_files.h"

namespace mantissa {
namespace {

// Files end to end as one stream of tokens.
class Stream {
 public:
  Stream(const std::vector<std::string>& files, const std::string& format, const TokenOptions& options) {
    check(!files.empty(), "no token files");
    int64_t fits = 0;
    for (const std::string& path : files) {
      files_.push_back(open_token_file(path, format, options));
      begins_.push_back(begins_.back() + files_.back().tokens.count);
      fits = std::max(fits, vocabulary_of(files_.back().tokens.type));
    }
    vocab_size_ = options.vocab_size > 0 ? options.vocab_size : fits;
    check_eos(options.eos, vocab_size_);
  }

  int64_t tokens() const { return begins_.back(); }
  int64_t vocab_size() const { return vocab_size_; }
  const std::vector<TokenFile>& files() const { return files_; }
  int64_t begin(size_t file) const { return begins_[file]; }
  size_t file_of(int64_t token) const {
    return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), token) - begins_.begin()) - 1;
  }

  // Fills `out` from token `at` on. Exit::kInput names file and token of an id outside the vocabulary, and file and
  // place() of what is not there any more.
  template <class Place>
  void read(int64_t at, std::span<int32_t> out, Place&& place) const {
    for (size_t f = file_of(at); !out.empty(); ++f) {
      const TokenFile& file = files_[f];
      const int64_t offset = at - begins_[f];
      const auto count = std::min(static_cast<int64_t>(out.size()), file.tokens.count - offset);
      const int64_t bad = copy_ids(file.tokens, offset, out.first(static_cast<size_t>(count)), vocab_size_);
      if (!is_whole(file.data)) refuse_shrunk(file.data, place());
      if (bad >= 0)
        fail(Exit::kInput, "{}: token {} is {}, outside the vocabulary of {}", file.name, offset + bad,
             file.tokens.at(offset + bad), vocab_size_);
      out = out.subspan(static_cast<size_t>(count));
      at += count;
    }
  }

  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const TokenFile& file : files_) paths.insert(paths.end(), file.paths.begin(), file.paths.end());
    return paths;
  }

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_ = {0};  // token offset of each file in the stream, and the end
  int64_t vocab_size_ = 0;
};

class TokenRows : public RowSource {
 public:
  TokenRows(Stream stream, const std::string& format, const TokenOptions& options)
      : stream_(std::move(stream)),
        sequence_length_(options.sequence_length),
        eos_(format == "megatron" ? -1 : options.eos),
        documents_(format == "megatron"),
        rows_(stream_.tokens() / sequence_length_) {
    if (rows_ == 0)
      fail(Exit::kInput, "{}: {} tokens in all, fewer than one row of {} (data.sequence_length)",
           stream_.files()[0].name, stream_.tokens(), sequence_length_);
    statistics_ = measure(rows_, [&](int64_t row, Batch& batch) {
      append_row(row, batch);
      return 0;
    });
  }

  int64_t rows() const override { return rows_; }
  int64_t sequence_length() const override { return sequence_length_; }
  int64_t vocab_size() const override { return stream_.vocab_size(); }
  const RowStatistics& statistics() const override { return statistics_; }
  const Stream& stream() const { return stream_; }

  void append_row(int64_t row, Batch& batch) const override {
    check(row >= 0 && row < rows_, "row {} of {}", row, rows_);
    const int64_t begin = row * sequence_length_, end = begin + sequence_length_;
    RowFill fill(batch, sequence_length_);
    const auto place = [row] { return fmt::format("row {}", row); };
    stream_.read(begin, fill.ids(), place);
    if (documents_)
      for (size_t f = stream_.file_of(begin); f < stream_.files().size() && stream_.begin(f) < end; ++f) {
        const TokenFile& file = stream_.files()[f];
        read_mapped(
            file.index, [&] { split_documents(file, stream_.begin(f) - begin, fill); }, place);
      }
    else
      fill.split(eos_, sequence_length_);
    fill.finish();
  }

 private:
  // Segments of the documents of `file`, which begins at token `shift` of the row.
  void split_documents(const TokenFile& file, int64_t shift, RowFill& fill) const {
    // The first document that ends behind what is filled.
    int64_t low = 0, high = file.documents - 1;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (shift + file.document_begin(middle + 1) > fill.filled())
        high = middle;
      else
        low = middle + 1;
    }
    for (int64_t d = low; d < file.documents && fill.filled() < sequence_length_; ++d) {
      const int64_t end = std::min(sequence_length_, shift + file.document_begin(d + 1));
      if (end > fill.filled()) fill.segment(end);  // a document may be empty
    }
  }

  Stream stream_;
  int64_t sequence_length_;
  int32_t eos_;
  bool documents_;
  int64_t rows_;
  RowStatistics statistics_;
};

class TokenDocuments : public DocumentSource {
 public:
  TokenDocuments(Stream stream, const std::string& format, const TokenOptions& options)
      : stream_(std::move(stream)),
        megatron_(format == "megatron"),
        eos_(megatron_ ? -1 : options.eos),
        files_(fingerprint(stream_.paths())) {}

  bool next(EncodedDocument& document) override {
    document.learned.clear();
    document.ids.clear();
    while (at_ == end_)
      if (!advance()) return false;
    constexpr int64_t kStep = 4096;
    while (at_ < end_ && static_cast<int64_t>(document.ids.size()) < kMaxPieceTokens) {
      const size_t held = document.ids.size();
      const int64_t count =
          std::min({eos_ >= 0 ? kStep : kMaxPieceTokens, end_ - at_, kMaxPieceTokens - static_cast<int64_t>(held)});
      document.ids.resize(held + static_cast<size_t>(count));
      stream_.read(at_, std::span(document.ids).subspan(held), [this] { return fmt::format("token {}", at_); });
      const auto from = document.ids.begin() + static_cast<int64_t>(held);
      const auto stop = eos_ >= 0 ? std::find(from, document.ids.end(), eos_) : document.ids.end();
      const bool ended = stop != document.ids.end();
      const int64_t taken = stop - from + ended;
      at_ += taken;
      document.ids.resize(held + static_cast<size_t>(taken));
      if (ended) break;
    }
    return true;
  }

  double progress() const override { return static_cast<double>(at_) / static_cast<double>(stream_.tokens()); }
  int64_t vocab_size() const override { return stream_.vocab_size(); }
  const std::vector<SourceFile>& files() const override { return files_; }

 private:
  // Puts [at_, end_) on the next document, or the next file where EOS tells documents apart.
  bool advance() {
    while (file_ < stream_.files().size()) {
      const TokenFile& file = stream_.files()[file_];
      if (!megatron_) {
        end_ = stream_.begin(++file_);
        return true;
      }
      if (document_ < file.documents) {
        ++document_;
        end_ = stream_.begin(file_) + read_mapped(
                                          file.index, [&] { return file.document_begin(document_); },
                                          [this] { return fmt::format("document {}", document_); });
        return true;
      }
      ++file_, document_ = 0;
    }
    return false;
  }

  Stream stream_;
  bool megatron_;
  int32_t eos_;
  std::vector<SourceFile> files_;
  size_t file_ = 0;
  int64_t document_ = 0, at_ = 0, end_ = 0;
};

}  // namespace

TokenSource open_token_rows(const std::vector<std::string>& files, const std::string& format,
                            const TokenOptions& options) {
  check(options.sequence_length > 0, "rows of {} tokens", options.sequence_length);
  auto rows = std::make_unique<TokenRows>(Stream(files, format, options), format, options);
  TokenSource source;
  const Stream& stream = rows->stream();
  source.files = fingerprint(stream.paths());
  source.dropped_tokens = stream.tokens() - rows->rows() * rows->sequence_length();
  if (format == "megatron" && options.eos >= 0)
    source.notes.push_back("data.eos_token does not split rows: the .idx says where documents end");
  else if (options.eos >= 0)
    if (std::string note = missing_eos(options.eos, *rows); !note.empty()) source.notes.push_back(std::move(note));
  source.segments_by = format == "megatron" ? "documents" : options.eos >= 0 ? "eos" : "rows";
  source.rows = std::move(rows);
  return source;
}

std::unique_ptr<DocumentSource> open_token_documents(const std::vector<std::string>& files, const std::string& format,
                                                     const TokenOptions& options) {
  return std::make_unique<TokenDocuments>(Stream(files, format, options), format, options);
}

std::string token_file_format(const std::string& path) {
  const bool bin = path.ends_with(".bin");
  if (path.ends_with(".idx") || (bin && exists(path.substr(0, path.size() - 4) + ".idx"))) return "megatron";
  FileStream file(path);
  int32_t magic = 0;
  if (std::array<char, sizeof(magic)> head{}; file.read(head) == head.size()) magic = std::bit_cast<int32_t>(head);
  return magic / 10000 == 2024 ? "llmc" : "nanogpt";
}

}  // namespace mantissa
