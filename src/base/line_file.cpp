#include "base/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mantissa {

LineFile::LineFile(std::string path) : path_(std::move(path)) {
  file_ = Descriptor(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  if (!file_) fail(Exit::kStorage, "{}: cannot create: {}", path_, std::strerror(errno));
}

LineFile::LineFile(std::string path, int64_t size) : path_(std::move(path)), size_(size) {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0)
    fail(Exit::kStorage, "{}: cannot open: {}", path_, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(Exit::kStorage, "{}: is no plain file", path_);
  if (info.st_size < size) fail(Exit::kInput, "{}: holds {} bytes, expected at least {}", path_, info.st_size, size);
  char last = '\n';
  if (size > 0 && ::pread(file_.get(), &last, 1, size - 1) != 1)
    fail(Exit::kInput, "{}: cannot read: {}", path_, std::strerror(errno));
  if (last != '\n') fail(Exit::kInput, "{}: no line ends at byte {}", path_, size);
  if (::ftruncate(file_.get(), size) != 0) fail(Exit::kStorage, "{}: cannot cut: {}", path_, std::strerror(errno));
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

void LineFile::sync() {
  if (::fsync(file_.get()) != 0) fail(Exit::kStorage, "{}: cannot fsync: {}", path_, std::strerror(errno));
}

void LineFile::finish() {
  sync();
  if (!file_.close()) fail(Exit::kStorage, "{}: cannot close: {}", path_, std::strerror(errno));
}

}  // namespace mantissa
