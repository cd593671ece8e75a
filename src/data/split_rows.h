// Some rows of a source, drawn by the seed: how rows that are packed already are split into training and validation.
#pragma once

#include <memory>

#include "data/permutation.h"
#include "data/rows.h"

namespace mantissa {

class SplitRows final : public RowSource {
 public:
  // Rows [first, first + count) of a drawn order of all; the same seed gives the same order.
  SplitRows(std::shared_ptr<const RowSource> all, uint64_t seed, int64_t first, int64_t count);

  int64_t rows() const override { return count_; }
  int64_t sequence_length() const override { return all_->sequence_length(); }
  int64_t vocab_size() const override { return all_->vocab_size(); }
  void append_row(int64_t row, Batch& batch) const override;
  // Those of all rows in proportion, marked as sampled.
  const RowStatistics& statistics() const override { return statistics_; }

 private:
  std::shared_ptr<const RowSource> all_;
  Permutation order_;
  int64_t first_, count_;
  RowStatistics statistics_;
};

}  // namespace mantissa
