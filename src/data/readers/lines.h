// The lines of an input file, in bounded memory.
#pragma once

#include <string>
#include <string_view>

#include "data/input.h"

namespace mantissa {

class LineReader {
 public:
  // A line of more than `most` bytes is refused (Exit::kInput) with `hint` in its message.
  LineReader(const std::string& path, size_t most, std::string hint);

  // The next line without its LF, valid until the next call; false at the end. A byte order mark at the start goes.
  bool next(std::string_view& line);
  int64_t number() const { return number_; }   // of the line that next() gave, from 1
  uint64_t offset() const { return offset_; }  // of its first byte in the unpacked text
  InputStream& input() { return input_; }
  const InputStream& input() const { return input_; }

 private:
  InputStream input_;
  size_t most_;
  std::string hint_;
  std::string head_;       // the first bytes, without the mark
  std::string begun_;      // the start of a line that a piece cuts
  std::string_view rest_;  // of the current piece
  uint64_t offset_ = 0, behind_ = 0;
  int64_t number_ = 0;
  bool ended_ = false;
};

}  // namespace mantissa
