#include "data/split_rows.h"

#include <cmath>

#include "base/error.h"
#include "data/row_plan.h"

namespace mantissa {

SplitRows::SplitRows(std::shared_ptr<const RowSource> all, uint64_t seed, int64_t first, int64_t count)
    : all_(std::move(all)),
      order_(static_cast<uint64_t>(all_->rows()), seed, static_cast<uint32_t>(OrderStream::kSplitRows), 0),
      first_(first),
      count_(count),
      statistics_(all_->statistics()) {
  check(first >= 0 && count >= 0 && first + count <= all_->rows(), "SplitRows: {} rows from {} of {}", count, first,
        all_->rows());
  const double share = static_cast<double>(count) / static_cast<double>(all_->rows());
  const auto part = [share](int64_t whole) { return std::llround(share * static_cast<double>(whole)); };
  statistics_.segments = part(statistics_.segments);
  statistics_.padding = part(statistics_.padding);
  statistics_.labels = part(statistics_.labels);
  statistics_.squared_lengths *= share;
  statistics_.sampled |= count < all_->rows();
}

void SplitRows::append_row(int64_t row, Batch& batch) const {
  check(row >= 0 && row < count_, "row {} of {}", row, count_);
  all_->append_row(static_cast<int64_t>(order_(static_cast<uint64_t>(first_ + row))), batch);
}

}  // namespace mantissa
