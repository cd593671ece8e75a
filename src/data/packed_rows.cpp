#include "data/packed_rows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace mantissa {

PackedRows::PackedRows(std::shared_ptr<const Corpus> corpus, RowPlan plan, int32_t padding)
    : corpus_(std::move(corpus)), plan_(std::move(plan)), padding_(padding) {
  check(padding >= 0 && padding < corpus_->vocab_size(), "PackedRows: padding {} of a vocabulary of {}", padding,
        corpus_->vocab_size());
  measure();
}

int64_t PackedRows::labels_of(const Piece& piece) const {
  if (!corpus_->masked()) return piece.length - 1;
  int64_t labels = 0;
  for (int64_t i = 1; i < piece.length; ++i) labels += corpus_->learned(piece.begin + i);
  return labels;
}

void PackedRows::measure() {
  const auto squared = [](int64_t length) { return static_cast<double>(length) * static_cast<double>(length); };
  for (int64_t row = 0; row < rows(); ++row) {
    int64_t segments = 0, room = sequence_length();
    for (const Piece& piece : plan_.row(row)) {
      ++segments;
      room -= piece.length;
      statistics_.squared_lengths += squared(piece.length);
      statistics_.labels += labels_of(piece);
    }
    if (room > 0) {
      ++segments;
      statistics_.squared_lengths += squared(room);
      statistics_.padding += room;
    }
    statistics_.segments += segments;
    statistics_.most_segments = std::max(statistics_.most_segments, segments);
  }
}

void PackedRows::append_piece(const Piece& piece, Batch& batch) const {
  const size_t begin = batch.ids.size(), end = begin + static_cast<size_t>(piece.length);
  batch.ids.resize(end);
  corpus_->read(piece.begin, std::span(batch.ids).subspan(begin));
  batch.labels.insert(batch.labels.end(), batch.ids.begin() + static_cast<std::ptrdiff_t>(begin) + 1, batch.ids.end());
  batch.labels.push_back(kIgnoredLabel);
  batch.valid_tokens += piece.length - 1;
  if (corpus_->masked())
    for (int32_t i = 1; i < piece.length; ++i)
      if (!corpus_->learned(piece.begin + i)) {
        batch.labels[begin + static_cast<size_t>(i) - 1] = kIgnoredLabel;
        --batch.valid_tokens;
      }
}

void PackedRows::append_row(int64_t row, Batch& batch) const {
  if (batch.segments.empty()) batch.segments.push_back(0);
  const size_t begin = batch.ids.size(), end = begin + static_cast<size_t>(sequence_length());
  const auto close = [&batch](size_t from) {
    batch.segments.push_back(static_cast<int32_t>(batch.ids.size()));
    batch.positions.resize(batch.ids.size());
    std::iota(batch.positions.begin() + static_cast<std::ptrdiff_t>(from), batch.positions.end(), 0);
  };
  for (const Piece& piece : plan_.row(row)) {
    const size_t from = batch.ids.size();
    append_piece(piece, batch);
    close(from);
  }
  if (const size_t from = batch.ids.size(); from < end) {
    batch.ids.resize(end, padding_);
    batch.labels.resize(end, kIgnoredLabel);
    close(from);
  }
  check(batch.ids.size() == end, "row {} holds {} tokens of {}", row, batch.ids.size() - begin, sequence_length());
  ++batch.rows;
}

}  // namespace mantissa
