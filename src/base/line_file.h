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

  // One line, handed to the system before this returns. Exit::kStorage when it cannot be written; then the file ends
  // with the line before it.
  void append(std::string_view line);
  // To the disk, and closed.
  void finish();

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;  // of whole lines
};

}  // namespace mantissa
