// Which columns of a folder hold ids, segments, labels and padding, and how a sample becomes a row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/mds/reader.h"
#include "data/token_files/token_source.h"

namespace mantissa::mds {

class RowLayout {
 public:
  // Exit::kInput when there is no column of ids, or one that rows need holds something else.
  RowLayout(const Folder& folder, const TokenOptions& options);

  Element ids_type() const { return ids_element_; }
  bool labels() const { return labels_ >= 0; }
  const char* segments_by() const;
  const std::vector<std::string>& notes() const { return notes_; }

  // Reads the first samples of `shard` to see whether labels repeat their own token; true once they show it.
  bool learn_labels(const Shard& shard, int32_t most);

  int64_t length(const Shard& shard, int64_t sample) const;  // tokens of a sample
  // Appends a sample of `sequence_length` tokens to the batch; gives its padding tokens.
  int64_t append(const Shard& shard, int64_t sample, int64_t sequence_length, int64_t vocab_size, Batch& batch) const;

 private:
  Elements values(const Shard& shard, int64_t sample, int column) const;
  Elements values_of(const Shard& shard, int64_t sample, int column, int64_t count) const;

  int ids_ = -1, lengths_ = -1, labels_ = -1, mask_ = -1;
  Element ids_element_ = Element::kI64, bytes_element_ = Element::kI64;
  bool hugging_face_ = false;  // ids stand in `input_ids`
  bool repeated_ = false;      // a label is the token of its own position
  int32_t eos_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace mantissa::mds
