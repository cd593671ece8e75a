#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/mapped_range.h"

namespace mantissa {
namespace {

// Opens a regular file for reading and describes it. O_NONBLOCK: a pipe must not hang the open.
int open_regular(const std::string& path, Links links, struct stat& info) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  const int fd = ::open(path.c_str(), flags);
  if (fd < 0) {
    if (errno == ELOOP && links == Links::kRefuse)
      fail(Exit::kInput, "{}: is a symbolic link, expected a plain file; a copy made with cp -rL holds plain files",
           path);
    fail(Exit::kInput, "{}: cannot open: {}", path, std::strerror(errno));
  }
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) {
    ::close(fd);
    fail(Exit::kInput, "{}: is {}, expected a plain file", path, S_ISDIR(info.st_mode) ? "a folder" : "not a file");
  }
  return fd;
}

int open_regular(const std::string& path, Links links, uint64_t& size) {
  struct stat info {};
  const int fd = open_regular(path, links, info);
  size = static_cast<uint64_t>(info.st_size);
  return fd;
}

// False where nothing stands at `path`.
bool look_at(const std::string& path, struct stat& info) {
  if (::stat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR)
    fail(Exit::kInput, "{}: cannot be looked at: {}", path, std::strerror(errno));
  return false;
}

}  // namespace

MappedFile MappedFile::open(const std::string& path, Links links) {
  struct stat info {};
  const Descriptor file(open_regular(path, links, info));
  const auto size = static_cast<uint64_t>(info.st_size);
  MappedFile mapped;
  mapped.path_ = path;
  mapped.size_ = size;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (data == MAP_FAILED) fail(Exit::kInput, "{}: cannot map {} bytes: {}", path, size, std::strerror(errno));
    mapped.data_ = static_cast<const std::byte*>(data);
    guard_range(data, size, info.st_dev, info.st_ino);
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  release_range(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void read_ahead(std::span<const std::byte> mapped) {
  // Linux reads no more than a device's readahead, often 128 KiB, at one call's word.
  constexpr uintptr_t kPiece = uintptr_t{128} << 10;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), first = reinterpret_cast<uintptr_t>(mapped.data());
  const uintptr_t end = first + mapped.size();
  for (uintptr_t at = first / page * page; at < end; at += kPiece)
    ::madvise(reinterpret_cast<void*>(at), std::min(kPiece, end - at), MADV_WILLNEED);
}

FileStream::FileStream(const std::string& path) : path_(path) {
  descriptor_ = open_regular(path, Links::kFollow, size_);
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint: nothing to do when it is not taken
}

FileStream::~FileStream() { ::close(descriptor_); }

size_t FileStream::read(std::span<char> room) {
  size_t done = 0;
  while (done < room.size()) {
    const ssize_t n = ::read(descriptor_, room.data() + done, room.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::kInput, "{}: cannot read: {}", path_, std::strerror(errno));
    if (n == 0) {
      const auto end = static_cast<uint64_t>(::lseek(descriptor_, 0, SEEK_CUR));
      if (end < size_)
        fail(Exit::kInput, "{}: ended after {} of {} bytes; it was cut while it was read", path_, end, size_);
      break;
    }
    done += static_cast<size_t>(n);
  }
  return done;
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  temporary_ = path_ + ".tmp-" + std::to_string(::getpid());
  const auto create = [&] {
    return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  };
  descriptor_ = create();
  // Left by a process that had this number and was killed; what else stands there is another's.
  if (descriptor_ < 0 && errno == EEXIST) {
    struct stat info {};
    if (::lstat(temporary_.c_str(), &info) == 0 && (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()))
      fail(Exit::kStorage, "{}: stands where {} is written first, and is no file that this program left; remove it",
           temporary_, path_);
    if (::unlink(temporary_.c_str()) == 0) descriptor_ = create();
  }
  if (descriptor_ < 0) fail(Exit::kStorage, "{}: cannot create: {}", path_, std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, path_); }

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(Exit::kStorage, "{}: cannot fsync: {}", path_, std::strerror(errno));
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail(Exit::kStorage, "{}: cannot put the written file in place: {}", path_, std::strerror(error));
  }
  sync_directory(parent_of(path_));
}

bool exists(const std::string& path) {
  struct stat info {};
  return look_at(path, info);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return look_at(path, info) && S_ISDIR(info.st_mode);
}

uint64_t file_size(const std::string& path) {
  uint64_t size = 0;
  const Descriptor file(open_regular(path, Links::kFollow, size));
  return size;
}

std::string join_path(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

std::string read_text(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  const Descriptor file(open_regular(path, Links::kFollow, size));
  if (size > max_bytes) fail(Exit::kInput, "{}: has {} bytes, expected at most {}", path, size, max_bytes);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(Exit::kInput, "{}: cannot read: {}", path, std::strerror(errno));
    if (n == 0) fail(Exit::kInput, "{}: ended after {} of {} bytes", path, done, size);
    done += static_cast<size_t>(n);
  }
  return text;
}

void write_atomic(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void make_dirs(const std::string& path) {
  const auto make = [&path] { return ::mkdir(path.c_str(), 0777) == 0 ? 0 : errno; };
  int error = make();
  if (error == ENOENT && !path.empty()) {
    make_dirs(parent_of(std::filesystem::path(path).has_filename() ? path : parent_of(path)));
    error = make();
  }
  if (error == EEXIST && is_directory(path)) return;
  if (error != 0)
    fail(Exit::kStorage, "{}: cannot make the folder: {}", path,
         error == EEXIST ? "a file stands there" : std::strerror(error));
}

void sync_directory(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot fsync a folder and say EINVAL; the rename itself has happened.
  if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL))
    fail(Exit::kStorage, "{}: cannot fsync the folder: {}", path, std::strerror(errno));
}

uint64_t free_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0)
    fail(Exit::kStorage, "{}: cannot read the free space: {}", path, std::strerror(errno));
  return uint64_t{info.f_bavail} * info.f_frsize;
}

}  // namespace mantissa
