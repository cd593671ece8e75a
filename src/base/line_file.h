// A file of lines that grows while a program works, such as metrics.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace mantissa {

class LineFile {
 public:
  // A new file. What stands at `path` stays: another file, a link, a pipe or a device is refused (Exit::kStorage).
  explicit LineFile(std::string path);
  // The file at `path`, cut to its first `size` bytes, which end a line. Exit::kInput where it is shorter or they do
  // not, Exit::kStorage for what is no plain file.
  LineFile(std::string path, int64_t size);

  int64_t size() const { return size_; }
  // One line, handed to the system before this returns. Exit::kStorage when it cannot be written; then the file ends
  // with the line before it.
  void append(std::string_view line);
  // What was appended, to the disk.
  void sync();
  // The same, and closed.
  void finish();

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;  // of whole lines
};

}  // namespace mantissa
