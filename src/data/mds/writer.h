// Writes packed rows as MDS v2 shards that MosaicML streaming and open_rows() read.
//
//   mds::Writer writer("out/train", {.vocab_size = V, .sequence_length = S});
//   writer.add(ids, document_lengths, {});
//   writer.finish(prepared);   // nothing stands at out/train before
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/mds/prepared.h"

namespace mantissa::mds {

struct WriterOptions {
  int64_t sequence_length = 0, vocab_size = 0;
  bool labels = false;                           // rows have labels of their own
  uint64_t size_limit = uint64_t{1} << 26;       // bytes of a shard before compression
  int zstd_level = 0;                            // 0: not compressed, so that training maps the shards
  std::vector<std::string> hashes = {"sha256"};  // of sha1, sha256, xxh64
};

// Columns, all ndarray:int32: `tokens` [S]; `document_lengths`, which sum to S; `labels` [S] where asked for: the id to
// predict from each position, -100 where none is. Everything is written into FOLDER.tmp-PID, index.json last, and that
// folder is renamed; without finish() it is removed. Not thread-safe. Exit::kStorage when the disk is full.
class Writer {
 public:
  // Exit::kUsage when something other than an empty folder stands at `folder`.
  Writer(const std::string& folder, const WriterOptions& options);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Exit::kInternal for a row of another length, an id outside the vocabulary, lengths that do not sum to S, or labels
  // given or left out against the options.
  void add(std::span<const int32_t> ids, std::span<const int32_t> document_lengths, std::span<const int32_t> labels);
  int64_t rows() const;
  uint64_t bytes_written() const;  // on the disk so far
  // `rows`, `tokens`, `sequence_length`, `vocab_size`, `labels` and `statistics` are set here; statistics.padding is
  // the caller's.
  void finish(Prepared prepared);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mantissa::mds
