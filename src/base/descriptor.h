// An open file that is closed with its object, and writing to it to the last byte.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mantissa {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Closes the file and says whether that went well (errno).
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// Writes all of `bytes`. Exit::kStorage names `path`, what could not be written and, on a full disk, what is free.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& path);
inline void write_all(int fd, std::string_view text, const std::string& path) {
  write_all(fd, std::as_bytes(std::span(text)), path);
}

// Makes descriptors 0 to 2 what a program may count on: one that is closed is opened on /dev/null, so that no file of
// the program's own takes its number. False where that cannot be done.
bool open_standard_descriptors();

}  // namespace mantissa
