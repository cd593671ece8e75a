// Fills one row of a batch: ids first, then the ends of its segments, from which labels and positions follow.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/batch.h"
#include "data/rows.h"

namespace mantissa {

class RowFill {
 public:
  // Makes room for a row of `sequence_length` tokens. The batch holds whole rows; when filling fails it is unspecified.
  RowFill(Batch& batch, int64_t sequence_length);

  std::span<int32_t> ids() { return std::span(batch_.ids).subspan(begin_); }
  std::span<int32_t> labels() { return std::span(batch_.labels).subspan(begin_); }
  int64_t filled() const { return filled_; }  // end of the last segment

  // The segment from filled() to `end`, in tokens of the row: positions from 0, labels the next ids, -100 at the last.
  void segment(int64_t end);
  // Ends a segment behind each `eos` (-1: none) before `end`, and at `end`.
  void split(int32_t eos, int64_t end);
  // Labels that stand at their own token move to the position before it; those that begin a segment are dropped.
  void shift_labels();
  // Once the whole row is in segments: counts its labels.
  void finish();

 private:
  Batch& batch_;
  size_t begin_;
  int64_t length_, filled_ = 0;
};

// Statistics of all rows or, of more than `most`, of `most` evenly spread ones, scaled to all. append(row, batch) gives
// the padding tokens of the row.
RowStatistics measure(int64_t rows, const std::function<int64_t(int64_t, Batch&)>& append, int64_t most = 2048);

}  // namespace mantissa
