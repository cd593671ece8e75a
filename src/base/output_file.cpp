#include "base/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/signal.h"

namespace mantissa {
namespace {

// The standard stream that leads to the same file, or -1.
int standard_stream(const struct stat& info) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == info.st_dev && own.st_ino == info.st_ino) return fd;
  }
  return -1;
}

// A FIFO cannot be opened for writing before somebody reads it.
Descriptor open_stream(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPatience(10'000), kPause(20);
  const auto begin = Clock::now();
  for (;;) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (file) {
      const int flags = ::fcntl(file.get(), F_GETFL);
      if (flags < 0 || ::fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK) != 0)
        fail(Exit::kStorage, "{}: cannot be written to: {}", path, std::strerror(errno));
      return file;
    }
    if (errno != ENXIO) fail(Exit::kStorage, "{}: cannot be opened: {}", path, std::strerror(errno));
    if (Clock::now() - begin > kPatience) fail(Exit::kStorage, "{}: is a FIFO, and nobody reads it", path);
    throw_if_stopped("waiting for a reader of " + path);
    std::this_thread::sleep_for(kPause);
  }
}

// A reader that went away is an error of the write, not the end of the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before_);
  }
  ~WithoutSigpipe() { ::sigaction(SIGPIPE, &before_, nullptr); }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) {
    int error = errno;
    const auto absent = [](int code) { return code == ENOENT || code == ENOTDIR; };
    if (::lstat(path_.c_str(), &info) == 0) {
      if (S_ISLNK(info.st_mode))
        fail(Exit::kStorage, "{}: is a link that leads to no file: {}", path_, std::strerror(error));
    } else if (absent(error)) {
      error = errno;
    }
    if (!absent(error)) fail(Exit::kStorage, "{}: cannot be looked at: {}", path_, std::strerror(error));
    replaced_ = std::make_unique<AtomicFile>(path_);
    return;
  }
  if (const int fd = standard_stream(info); fd >= 0 && !S_ISDIR(info.st_mode)) {
    std::fflush(stdout);  // what was printed stands before what is written here
    stream_ = Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!stream_) fail(Exit::kStorage, "{}: cannot be opened: {}", path_, std::strerror(errno));
  } else if (S_ISREG(info.st_mode)) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::canonical(path_, error);
    if (error) fail(Exit::kStorage, "{}: cannot be followed: {}", path_, error.message());
    replaced_ = std::make_unique<AtomicFile>(target.string());
  } else if (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode) || S_ISBLK(info.st_mode)) {
    stream_ = open_stream(path_);
  } else {
    fail(Exit::kStorage, "{}: is a {}, expected a file, a device or a pipe", path_,
         S_ISDIR(info.st_mode)    ? "folder"
         : S_ISSOCK(info.st_mode) ? "socket"
                                  : "thing of another kind");
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  if (replaced_) return replaced_->write(bytes);
  const WithoutSigpipe guard;
  write_all(stream_.get(), bytes, path_);
}

void OutputFile::commit() {
  if (replaced_) return replaced_->commit();
  // A pipe and most devices have nothing to sync and say EINVAL.
  if (::fsync(stream_.get()) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    fail(Exit::kStorage, "{}: cannot fsync: {}", path_, std::strerror(errno));
  if (!stream_.close()) fail(Exit::kStorage, "{}: cannot close: {}", path_, std::strerror(errno));
}

void expect_replaceable(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    fail(Exit::kStorage, "{}: cannot be looked at: {}", path, std::strerror(errno));
  }
  if (S_ISREG(info.st_mode)) return;
  const char* kind = S_ISLNK(info.st_mode)    ? "a link"
                     : S_ISDIR(info.st_mode)  ? "a folder"
                     : S_ISFIFO(info.st_mode) ? "a FIFO"
                     : S_ISSOCK(info.st_mode) ? "a socket"
                                              : "a device";
  fail(Exit::kStorage, "{}: is {}, expected a plain file or nothing; remove it, or give another folder", path, kind);
}

void write_output(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace mantissa
