// Memory is planned by running the same allocation code twice: a counting pass that only adds up, and a committing pass
// that hands out addresses from one block. The plan is known before anything is allocated; addresses never change
// after.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/quant.h"

namespace mantissa {

// Bytes by purpose, in the order in which purposes first appear.
class MemoryLedger {
 public:
  void add(std::string_view purpose, int64_t bytes);
  int64_t total() const;
  int64_t of(std::string_view purpose) const;
  const std::vector<std::pair<std::string, int64_t>>& rows() const { return rows_; }

 private:
  std::vector<std::pair<std::string, int64_t>> rows_;
};

// Hands out tensors; while counting they have no address (operator bool is false).
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Tensor tensor(std::string_view purpose, DType dtype, Shape shape) = 0;
  // Codes, scales and amax of one quantized copy.
  Quantized quantized(std::string_view purpose, const QuantFormat& format, int64_t outer, int64_t inner);
  // The quantized forms of `spec` for X[m,k]; the caller sets `high`.
  Operand operand(std::string_view purpose, const OperandSpec& spec, int64_t m, int64_t k);
};

class Arena : public Allocator {
 public:
  static constexpr int64_t kAlignment = 256;  // bytes

  // Runs `allocate` to count, reserves zeroed memory (of the device, which must outlive this, or of the host), runs
  // `allocate` again to commit. Throws Exit::kMemory when the block cannot be had.
  void build(const std::function<void(Arena&)>& allocate, Device* device = nullptr);
  // The counting pass alone: what build() would reserve.
  static MemoryLedger measure(const std::function<void(Arena&)>& allocate);

  Tensor tensor(std::string_view purpose, DType dtype, Shape shape) override;

  bool counting() const { return base_ == nullptr; }
  const MemoryLedger& ledger() const { return ledger_; }
  // All of it, once built.
  std::span<std::byte> memory() const { return {block_.get(), static_cast<size_t>(size_)}; }

 private:
  struct Free {
    Device* device;  // null: the host's
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> block_;
  std::byte* base_ = nullptr;
  int64_t used_ = 0, size_ = 0;
  MemoryLedger ledger_;
};

// Memory that several users share one after another: each rewinds and allocates from the start; the region is as large
// as the largest of them. within() sizes it in the counting pass and places it in the second.
class Region : public Allocator {
 public:
  explicit Region(std::string purpose) : purpose_(std::move(purpose)) {}

  void rewind() { used_ = 0; }
  Tensor tensor(std::string_view purpose, DType dtype, Shape shape) override;
  // Runs `users`, which rewind and allocate, with the region's memory taken from `arena`.
  void within(Arena& arena, const std::function<void()>& users);

 private:
  std::string purpose_;
  std::byte* base_ = nullptr;
  int64_t used_ = 0, peak_ = 0;
};

}  // namespace mantissa
