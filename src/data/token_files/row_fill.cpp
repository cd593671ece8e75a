#include "data/token_files/row_fill.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mantissa {

RowFill::RowFill(Batch& batch, int64_t sequence_length)
    : batch_(batch), begin_(batch.ids.size()), length_(sequence_length) {
  if (batch.segments.empty()) batch.segments.push_back(0);
  const size_t size = begin_ + static_cast<size_t>(sequence_length);
  check(size <= INT32_MAX, "a batch of {} tokens", size);
  for (auto* list : {&batch.ids, &batch.labels, &batch.positions}) list->resize(size);
}

void RowFill::segment(int64_t end) {
  check(end > filled_ && end <= length_, "segment {} to {} of {}", filled_, end, length_);
  const size_t first = begin_ + static_cast<size_t>(filled_), last = begin_ + static_cast<size_t>(end) - 1;
  std::copy(batch_.ids.begin() + static_cast<int64_t>(first) + 1, batch_.ids.begin() + static_cast<int64_t>(last) + 1,
            batch_.labels.begin() + static_cast<int64_t>(first));
  batch_.labels[last] = kIgnoredLabel;
  for (size_t i = first; i <= last; ++i) batch_.positions[i] = static_cast<int32_t>(i - first);
  batch_.segments.push_back(static_cast<int32_t>(last + 1));
  filled_ = end;
}

void RowFill::split(int32_t eos, int64_t end) {
  const std::span<const int32_t> row = ids();
  if (eos >= 0)
    for (int64_t i = filled_; i + 1 < end; ++i)
      if (row[static_cast<size_t>(i)] == eos) segment(i + 1);
  if (filled_ < end) segment(end);
}

void RowFill::shift_labels() {
  const std::span<int32_t> row = labels();
  std::copy(row.begin() + 1, row.end(), row.begin());
  for (size_t s = batch_.segments.size(); s-- > 0 && static_cast<size_t>(batch_.segments[s]) > begin_;)
    batch_.labels[static_cast<size_t>(batch_.segments[s]) - 1] = kIgnoredLabel;
}

void RowFill::finish() {
  check(filled_ == length_, "a row is filled to {} of {}", filled_, length_);
  for (const int32_t label : labels()) batch_.valid_tokens += label != kIgnoredLabel;
  ++batch_.rows;
}

RowStatistics measure(int64_t rows, const std::function<int64_t(int64_t, Batch&)>& append, int64_t most) {
  const int64_t taken = std::min(rows, most);
  RowStatistics statistics;
  statistics.sampled = taken < rows;
  Batch batch;
  for (int64_t i = 0; i < taken; ++i) {
    batch.clear();
    const double at = static_cast<double>(rows) * static_cast<double>(i) / static_cast<double>(taken);
    statistics.padding += append(statistics.sampled ? static_cast<int64_t>(at) : i, batch);
    const auto segments = static_cast<int64_t>(batch.segments.size()) - 1;
    statistics.segments += segments;
    statistics.most_segments = std::max(statistics.most_segments, segments);
    for (int64_t s = 0; s < segments; ++s) {
      const double length = batch.segments[static_cast<size_t>(s) + 1] - batch.segments[static_cast<size_t>(s)];
      statistics.squared_lengths += length * length;
    }
    statistics.labels += batch.valid_tokens;
  }
  if (!statistics.sampled) return statistics;
  const double scale = static_cast<double>(rows) / static_cast<double>(taken);
  statistics.segments = std::llround(static_cast<double>(statistics.segments) * scale);
  statistics.padding = std::llround(static_cast<double>(statistics.padding) * scale);
  statistics.labels = std::llround(static_cast<double>(statistics.labels) * scale);
  statistics.squared_lengths *= scale;
  return statistics;
}

}  // namespace mantissa
