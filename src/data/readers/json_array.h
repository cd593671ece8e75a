// The elements of a file that is one JSON array, as pieces of text, in bounded memory.
#pragma once

#include <string>
#include <string_view>

#include "data/input.h"

namespace mantissa {

class JsonArray {
 public:
  // An element of more than `most` bytes is refused (Exit::kInput).
  JsonArray(const std::string& path, size_t most);

  // The next element without the spaces around it, valid until the next call; false behind the last one. What stands
  // inside is not checked here, but that strings and brackets close; what stands between elements is.
  bool next(std::string_view& element);
  int64_t number() const { return number_; }  // of the element that next() gave, from 1
  int64_t line() const { return line_; }      // where it begins, from 1
  InputStream& input() { return input_; }
  const InputStream& input() const { return input_; }

 private:
  [[noreturn]] void bad(std::string_view expected) const;
  bool more();    // some byte is at hand
  bool space();   // passes over spaces; more()
  void take();    // reads the element at hand
  void finish();  // behind the closing bracket

  InputStream input_;
  size_t most_;
  std::string_view rest_;  // of the current piece
  std::string element_;
  int64_t number_ = 0, line_ = 1, lines_ = 1;
  bool begun_ = false, ended_ = false;
};

// The first byte of the text in the file that is no space, behind a byte order mark, is "[": it is one JSON array.
bool begins_json_array(const std::string& path);

}  // namespace mantissa
