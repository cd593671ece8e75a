// Truncated multi-packing: documents, each closed by the separator token, lie end to end and are cut every S tokens.
// Every row is full; the tail that fills no row is dropped. A document cut by a row's end goes on in the next row as a
// new segment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"

namespace mantissa {

// Tokens kept in as few bytes as the vocabulary allows.
class TokenStore {
 public:
  explicit TokenStore(int64_t vocab_size);
  void append(std::span<const uint8_t> bytes);
  void append(int32_t token);
  int64_t size() const { return size_; }
  int32_t operator[](int64_t i) const;
  void truncate(int64_t size);
  void reserve(int64_t size);

 private:
  int64_t vocab_size_, size_ = 0;
  int width_;  // bytes a token: 1, 2 or 4
  std::vector<uint8_t> bytes_;
};

class PackedRows {
 public:
  PackedRows(int64_t vocab_size, int64_t sequence_length) : tokens_(vocab_size), sequence_length_(sequence_length) {}

  // Begins a document; the tokens appended to tokens() until the next one are its own.
  void begin_document() { starts_.push_back(tokens_.size()); }
  TokenStore& tokens() { return tokens_; }
  const TokenStore& tokens() const { return tokens_; }
  // Drops the tail. To be called once, behind the last document.
  void finish();

  int64_t rows() const { return rows_; }
  int64_t dropped_tokens() const { return dropped_; }
  int64_t most_segments() const { return most_segments_; }  // in one row
  // Sum over all segments of length and of its square: attention works on the square.
  int64_t segments() const { return segments_; }
  double squared_lengths() const { return squared_; }

  // Appends row `row` to the batch, which already holds whole rows.
  void append_row(int64_t row, Batch& batch) const;

 private:
  template <class Body>
  void for_segments(int64_t row, Body&& body) const;

  TokenStore tokens_;
  int64_t sequence_length_, rows_ = 0, dropped_ = 0, most_segments_ = 0, segments_ = 0;
  double squared_ = 0;
  std::vector<int64_t> starts_;  // of each document in the stream, ascending
};

}  // namespace mantissa
