// Memory is planned by running the same allocation code twice: a counting pass that only adds up, and a committing pass
// that hands out addresses from one block. The plan is known before anything is allocated; addresses never change after.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

class Arena {
 public:
  static constexpr int64_t kAlignment = 256;  // bytes

  // Runs `allocate` to count, reserves zeroed memory, runs `allocate` again to commit.
  // Throws Exit::kMemory when the block cannot be had.
  void build(const std::function<void(Arena&)>& allocate);
  // The counting pass alone: what build() would reserve.
  static MemoryLedger measure(const std::function<void(Arena&)>& allocate);

  // While counting the tensor has no address (operator bool is false).
  Tensor tensor(std::string_view purpose, DType dtype, Shape shape);
  // The quantized forms of `spec` for X[m,k]; the caller sets `high`.
  Operand operand(std::string_view purpose, const OperandSpec& spec, int64_t m, int64_t k);
  Quantized quantized(std::string_view purpose, const QuantFormat& format, int64_t outer, int64_t inner);

  bool counting() const { return base_ == nullptr; }
  const MemoryLedger& ledger() const { return ledger_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> block_;
  std::byte* base_ = nullptr;
  int64_t used_ = 0, size_ = 0;
  MemoryLedger ledger_;
};

}  // namespace mantissa
