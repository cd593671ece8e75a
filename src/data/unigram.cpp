#include "data/unigram.h"

#include <algorithm>
#include <cmath>

#include "base/signal.h"

namespace mantissa {

void UnigramCounts::add(std::span<const int32_t> ids) {
  for (const int32_t id : ids) ++counts_[static_cast<size_t>(id)];
  total_ += static_cast<int64_t>(ids.size());
}

void UnigramCounts::add_labels(std::span<const int32_t> labels) {
  for (const int32_t label : labels) {
    if (label == kIgnoredLabel) continue;
    ++counts_[static_cast<size_t>(label)];
    ++total_;
  }
}

double UnigramCounts::entropy() const {
  double entropy = 0;
  for (const int64_t count : counts_) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(total_);
    entropy -= share * std::log(share);
  }
  return entropy;
}

void count_row(const PackedRows& rows, int64_t row, const Batch& batch, UnigramCounts& counts) {
  if (rows.corpus().masked()) return counts.add_labels(batch.labels);
  size_t filled = 0;
  for (const Piece& piece : rows.plan().row(row)) filled += static_cast<size_t>(piece.length);
  counts.add(std::span(batch.ids).first(filled));
}

double unigram_entropy(const PackedRows& rows) {
  UnigramCounts counts(rows.vocab_size());
  Batch batch;
  batch.reserve(1, rows.sequence_length());
  for (int64_t row = 0; row < rows.rows(); ++row) {
    if (row % 4096 == 0) throw_if_stopped("counting tokens");
    batch.clear();
    rows.append_row(row, batch);
    count_row(rows, row, batch, counts);
  }
  return counts.entropy();
}

double sampled_entropy(const RowSource& rows, int64_t most_tokens) {
  UnigramCounts counts(rows.vocab_size());
  const int64_t taken = std::clamp<int64_t>(most_tokens / rows.sequence_length(), 1, std::max<int64_t>(1, rows.rows()));
  Batch batch;
  batch.reserve(1, rows.sequence_length());
  for (int64_t i = 0; i < std::min(taken, rows.rows()); ++i) {
    batch.clear();
    rows.append_row(
        static_cast<int64_t>(static_cast<double>(rows.rows()) * static_cast<double>(i) / static_cast<double>(taken)),
        batch);
    counts.add_labels(batch.labels);
  }
  return counts.entropy();
}

}  // namespace mantissa
