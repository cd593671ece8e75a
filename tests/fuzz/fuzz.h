// One target a file: reads the input as a parser's file. Only Error may leave the parser; libFuzzer sees the rest.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mantissa::fuzz {

// Runs `body` on the input; an Error is an answer.
template <class Body>
int run(const uint8_t* data, size_t size, Body&& body) {
  try {
    body(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error&) {
  }
  return 0;
}

// A file with the input's bytes, for parsers that map files.
class InputFile {
 public:
  InputFile(std::string_view bytes, std::string_view suffix) : path_("/tmp/mantissa-fuzz-XXXXXX") {
    path_ += suffix;
    const int file = mkstemps(path_.data(), static_cast<int>(suffix.size()));
    const bool written = file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
    if (file >= 0) close(file);
    if (!written) std::abort();
  }
  ~InputFile() { unlink(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace mantissa::fuzz

#define MANTISSA_FUZZ(input, ...)                                                   \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {         \
    return mantissa::fuzz::run(data, size, [](std::string_view input) __VA_ARGS__); \
  }
