#include "data/packer.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace mantissa {

void Batch::clear() {
  rows = valid_tokens = 0;
  for (auto* list : {&ids, &labels, &positions, &segments}) list->clear();
}

void Batch::reserve(int64_t rows_wanted, int64_t tokens_a_row) {
  const auto tokens = static_cast<size_t>(rows_wanted * tokens_a_row);
  for (auto* list : {&ids, &labels, &positions}) list->reserve(tokens);
  segments.reserve(tokens + 1);
}

TokenStore::TokenStore(int64_t vocab_size)
    : vocab_size_(vocab_size),
      width_(vocab_size <= 1 << 8    ? 1
             : vocab_size <= 1 << 16 ? 2
                                     : 4) {
  check(vocab_size > 0 && vocab_size <= INT32_MAX, "TokenStore: vocabulary of {}", vocab_size);
}

void TokenStore::append(std::span<const uint8_t> bytes) {
  check(width_ == 1 && vocab_size_ == 256, "TokenStore: bytes into a vocabulary of {}", vocab_size_);
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  size_ += static_cast<int64_t>(bytes.size());
}

void TokenStore::append(int32_t token) {
  check(token >= 0 && token < vocab_size_, "TokenStore: token {} of a vocabulary of {}", token, vocab_size_);
  for (int i = 0; i < width_; ++i) bytes_.push_back(static_cast<uint8_t>(token >> (8 * i)));
  ++size_;
}

int32_t TokenStore::operator[](int64_t i) const {
  const uint8_t* at = bytes_.data() + i * width_;
  if (width_ == 1) return at[0];
  if (width_ == 2) return at[0] | at[1] << 8;
  return static_cast<int32_t>(at[0] | at[1] << 8 | at[2] << 16 | uint32_t{at[3]} << 24);
}

void TokenStore::truncate(int64_t size) {
  size_ = size;
  bytes_.resize(static_cast<size_t>(size * width_));
  bytes_.shrink_to_fit();
}

void TokenStore::reserve(int64_t size) { bytes_.reserve(static_cast<size_t>(size * width_)); }

// body(begin, end): the segments of a row as token offsets in the stream.
template <class Body>
void PackedRows::for_segments(int64_t row, Body&& body) const {
  const int64_t end = (row + 1) * sequence_length_;
  int64_t begin = row * sequence_length_;
  auto next = std::upper_bound(starts_.begin(), starts_.end(), begin);
  while (begin < end) {
    const int64_t stop = next == starts_.end() ? end : std::min(end, *next++);
    if (stop > begin) body(begin, stop);
    begin = stop;
  }
}

void PackedRows::finish() {
  rows_ = tokens_.size() / sequence_length_;
  dropped_ = tokens_.size() - rows_ * sequence_length_;
  tokens_.truncate(rows_ * sequence_length_);
  while (!starts_.empty() && starts_.back() >= tokens_.size()) starts_.pop_back();
  for (int64_t row = 0; row < rows_; ++row) {
    int64_t here = 0;
    for_segments(row, [&](int64_t begin, int64_t end) {
      ++here;
      squared_ += static_cast<double>(end - begin) * static_cast<double>(end - begin);
    });
    segments_ += here;
    most_segments_ = std::max(most_segments_, here);
  }
}

void PackedRows::append_row(int64_t row, Batch& batch) const {
  check(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  if (batch.segments.empty()) batch.segments.push_back(0);
  for_segments(row, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      batch.ids.push_back(tokens_[i]);
      batch.labels.push_back(i + 1 < end ? tokens_[i + 1] : kIgnoredLabel);
      batch.positions.push_back(static_cast<int32_t>(i - begin));
    }
    batch.segments.push_back(static_cast<int32_t>(batch.ids.size()));
    batch.valid_tokens += end - begin - 1;
  });
  ++batch.rows;
}

}  // namespace mantissa
