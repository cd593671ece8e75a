// What a user names as a place for output (--output, --json): a new file, a file that is replaced, or something that is
// there to be written to.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/file.h"

namespace mantissa {

// Nothing at `path`, or a regular file: written beside it and put in its place by commit() (AtomicFile). A link to a
// regular file is followed, its target replaced that way. A device, FIFO or pipe is written to as it stands, and so is
// what standard output or error lead to; a FIFO that nobody reads within ten seconds is refused. Anything else (a
// folder, a socket, a link to nothing) is refused. All with Exit::kStorage.
class OutputFile {
 public:
  explicit OutputFile(std::string path);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  std::string path_;
  std::unique_ptr<AtomicFile> replaced_;
  Descriptor stream_;
};

void write_output(const std::string& path, std::string_view text);

// Of a file of the program's own: Exit::kStorage unless nothing or a plain file stands at `path`; links are not
// followed.
void expect_replaceable(const std::string& path);

}  // namespace mantissa
