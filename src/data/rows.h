// Rows of S tokens, ready to train on: packed in memory, or mapped from files that hold tokens.
#pragma once

#include <cstdint>

#include "data/batch.h"

namespace mantissa {

// What rows hold, for the report and the FLOP count. Of large files it is measured on a sample of rows, and `sampled`
// says so.
struct RowStatistics {
  int64_t segments = 0;
  int64_t most_segments = 0;   // in one row
  double squared_lengths = 0;  // Σ s² over the segments
  int64_t padding = 0;         // tokens that only fill a row
  int64_t labels = 0;          // positions with a label
  bool sampled = false;
};

// Reading is thread-safe. Errors in a file's content are Exit::kInput and name file and row.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t sequence_length() const = 0;
  // Ids are in [0, this): as the files or the tokenizer say; each id of a mapped file is checked when its row is read.
  virtual int64_t vocab_size() const = 0;
  // Appends row `row` to the batch, which already holds whole rows of this length.
  virtual void append_row(int64_t row, Batch& batch) const = 0;
  virtual const RowStatistics& statistics() const = 0;
};

}  // namespace mantissa
