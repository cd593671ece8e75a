#include "data/byte_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/file.h"
#include "base/mapped_range.h"

namespace mantissa {
namespace {

constexpr uint64_t kBuffer = uint64_t{4} << 20;  // bytes of a write to the file

// A file without a name; where the file system has none of those, one whose name is gone at once.
int unnamed_file(const std::string& folder) {
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
    fail(Exit::kStorage, "{}: cannot create a file: {}", folder, std::strerror(errno));
  std::string name = join_path(folder, ".spill-XXXXXX");
  file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) fail(Exit::kStorage, "{}: cannot create a file: {}", folder, std::strerror(errno));
  if (::unlink(name.c_str()) != 0) {
    const int error = errno;
    ::close(file);
    fail(Exit::kStorage, "{}: cannot be removed: {}", name, std::strerror(error));
  }
  return file;
}

}  // namespace

ByteStore::ByteStore(const std::string& folder) : folder_(folder) {
  if (folder_.empty()) return;
  file_ = unnamed_file(folder_);
  grow(kBuffer);
}

ByteStore::~ByteStore() {
  if (mapped_ != nullptr) {
    release_range(mapped_);
    ::munmap(const_cast<std::byte*>(mapped_), size_);
  }
  if (file_ >= 0) ::close(file_);
}

void ByteStore::grow(uint64_t capacity) {
  // realloc() moves large blocks by remapping, not by copying.
  auto* grown = static_cast<std::byte*>(std::realloc(memory_.get(), capacity));
  if (grown == nullptr) throw std::bad_alloc();
  static_cast<void>(memory_.release());
  memory_.reset(grown);
  capacity_ = capacity;
}

void ByteStore::append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  if (file_ < 0 && held_ + bytes.size() > capacity_)
    grow(std::max<uint64_t>({held_ + bytes.size(), capacity_ + capacity_ / 2, 4096}));
  while (!bytes.empty()) {
    const uint64_t n = std::min<uint64_t>(bytes.size(), capacity_ - held_);
    std::memcpy(memory_.get() + held_, bytes.data(), n);
    held_ += n;
    bytes = bytes.subspan(n);
    if (file_ >= 0 && held_ == capacity_) flush();
  }
}

void ByteStore::flush() {
  for (uint64_t done = 0; done < held_;) {
    const ssize_t n = ::write(file_, memory_.get() + done, held_ - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail(Exit::kStorage, "{}: cannot write {} bytes, {} are free: {}", folder_, held_ - done, free_bytes(folder_),
           std::strerror(errno));
    done += static_cast<uint64_t>(n);
  }
  held_ = 0;
}

void ByteStore::finish() {
  if (file_ < 0) {
    if (size_ > 0) grow(size_);
    return;
  }
  flush();
  memory_.reset();
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) fail(Exit::kStorage, "{}: cannot map {} bytes: {}", folder_, size_, std::strerror(errno));
  mapped_ = static_cast<const std::byte*>(data);
  guard_range(mapped_, size_, 0, 0);
  lost_ = &lost_flag(mapped_);
}

void ByteStore::refuse_lost() const {
  fail(Exit::kStorage, "{}: what was put aside there ({} bytes in a file without a name) cannot be read any more",
       folder_, size_);
}

}  // namespace mantissa
