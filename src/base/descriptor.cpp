#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace mantissa {
namespace {

// ", 0 bytes are free" on the file's disk where that is why, else "".
std::string free_text(int fd, int error) {
  struct statvfs info {};
  if ((error != ENOSPC && error != EDQUOT) || ::fstatvfs(fd, &info) != 0 || info.f_blocks == 0) return "";
  return fmt::format(", {} bytes are free", uint64_t{info.f_bavail} * info.f_frsize);
}

}  // namespace

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  constexpr size_t kMost = size_t{1} << 30;  // Linux takes at most 2 GiB at a time
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min(bytes.size(), kMost));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      fail(Exit::kStorage, "{}: cannot write {} bytes{}: {}", path, bytes.size(), free_text(fd, error),
           std::strerror(error));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

bool open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one: those below are open.
    if (::open("/dev/null", O_RDWR) != fd) return false;
  }
  return true;
}

}  // namespace mantissa
