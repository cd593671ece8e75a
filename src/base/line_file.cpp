#include "base/line_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mantissa {

LineFile::LineFile(std::string path) : path_(std::move(path)) {
  file_ = Descriptor(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!file_) fail(Exit::kStorage, "{}: cannot create: {}", path_, std::strerror(errno));
}

void LineFile::append(std::string_view line) {
  const std::string whole = std::string(line) + '\n';
  try {
    write_all(file_.get(), whole, path_);
  } catch (Error& error) {
    if (::ftruncate(file_.get(), size_) != 0)
      error.add_context(fmt::format("{}: its last line is torn ({})", path_, std::strerror(errno)));
    throw;
  }
  size_ += static_cast<int64_t>(whole.size());
}

void LineFile::finish() {
  if (::fsync(file_.get()) != 0) fail(Exit::kStorage, "{}: cannot fsync: {}", path_, std::strerror(errno));
  if (!file_.close()) fail(Exit::kStorage, "{}: cannot close: {}", path_, std::strerror(errno));
}

}  // namespace mantissa
