// Rows from a corpus as a plan lays them. A row that its pieces do not fill ends in padding: a segment of its own
// without labels.
#pragma once

#include <memory>

#include "data/corpus.h"
#include "data/row_plan.h"
#include "data/rows.h"

namespace mantissa {

class PackedRows final : public RowSource {
 public:
  // `padding`: the id that fills rows.
  PackedRows(std::shared_ptr<const Corpus> corpus, RowPlan plan, int32_t padding);

  int64_t rows() const override { return plan_.rows(); }
  int64_t sequence_length() const override { return plan_.sequence_length(); }
  int64_t vocab_size() const override { return corpus_->vocab_size(); }
  void append_row(int64_t row, Batch& batch) const override;
  const RowStatistics& statistics() const override { return statistics_; }

  const RowPlan& plan() const { return plan_; }
  const Corpus& corpus() const { return *corpus_; }

 private:
  void append_piece(const Piece& piece, Batch& batch) const;
  int64_t labels_of(const Piece& piece) const;
  void measure();

  std::shared_ptr<const Corpus> corpus_;
  RowPlan plan_;
  int32_t padding_;
  RowStatistics statistics_;
};

}  // namespace mantissa
