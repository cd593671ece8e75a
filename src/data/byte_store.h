// Bytes that are appended and then read: in memory, or (for what memory does not hold) in an unnamed file that is
// mapped once it is complete and goes with its last user, however the process ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

namespace mantissa {

class ByteStore {
 public:
  // `folder` "": memory; else the unnamed file lies on the folder's file system.
  explicit ByteStore(const std::string& folder = "");
  ~ByteStore();
  ByteStore(const ByteStore&) = delete;
  ByteStore& operator=(const ByteStore&) = delete;

  // Exit::kStorage when the file system is full.
  void append(std::span<const std::byte> bytes);
  // To be called once, behind the last append().
  void finish();

  uint64_t size() const { return size_; }
  // Complete after finish().
  const std::byte* data() const { return mapped_ != nullptr ? mapped_ : memory_.get(); }
  // For whoever has read bytes of data(): they were those that were appended. Exit::kStorage where the file could not
  // be read.
  void check_whole() const {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (lost_ != nullptr && lost_->load()) refuse_lost();
  }

 private:
  void grow(uint64_t capacity);
  void flush();
  [[noreturn]] void refuse_lost() const;

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;  // all bytes, or those not yet in the file
  uint64_t capacity_ = 0, held_ = 0, size_ = 0;
  std::string folder_;
  int file_ = -1;
  const std::byte* mapped_ = nullptr;
  const std::atomic<bool>* lost_ = nullptr;
};

}  // namespace mantissa
