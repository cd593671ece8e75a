#include "tensor/arena.h"

#include <cstdlib>
#include <cstring>

namespace mantissa {

void MemoryLedger::add(std::string_view purpose, int64_t bytes) {
  for (auto& [name, sum] : rows_)
    if (name == purpose) {
      sum += bytes;
      return;
    }
  rows_.emplace_back(purpose, bytes);
}

int64_t MemoryLedger::total() const {
  int64_t sum = 0;
  for (const auto& row : rows_) sum += row.second;
  return sum;
}

int64_t MemoryLedger::of(std::string_view purpose) const {
  for (const auto& [name, sum] : rows_)
    if (name == purpose) return sum;
  return 0;
}

void Arena::Free::operator()(std::byte* p) const { device ? device->release(p) : std::free(p); }

MemoryLedger Arena::measure(const std::function<void(Arena&)>& allocate) {
  Arena arena;
  allocate(arena);
  return arena.ledger_;
}

void Arena::build(const std::function<void(Arena&)>& allocate, Device* device) {
  check(counting(), "an arena is built once");
  allocate(*this);
  size_ = used_;
  used_ = 0;
  ledger_ = {};
  if (size_ == 0) return;
  if (device) {
    block_ = {static_cast<std::byte*>(device->allocate(size_)), Free{device}};
  } else {
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(size_))));
    if (!block_) fail(Exit::kMemory, "memory: {} bytes could not be allocated", size_);
    std::memset(block_.get(), 0, static_cast<size_t>(size_));
  }
  base_ = block_.get();
  allocate(*this);
  check(used_ == size_, "arena: counted {} bytes, committed {}", size_, used_);
}

Tensor Arena::tensor(std::string_view purpose, DType dtype, Shape shape) {
  const int64_t bytes = ceil_div(bytes_of(dtype, shape.count()), kAlignment) * kAlignment;
  Tensor t(base_ ? base_ + used_ : nullptr, dtype, shape);
  used_ += bytes;
  check(!base_ || used_ <= size_, "arena: committing more than the {} bytes counted", size_);
  ledger_.add(purpose, bytes);
  return t;
}

Quantized Allocator::quantized(std::string_view purpose, const QuantFormat& format, int64_t outer, int64_t inner) {
  Quantized q;
  q.format = format;
  q.data = tensor(purpose, data_dtype(format), {outer, inner});
  q.scale_inv = tensor(purpose, scale_dtype(format), scale_shape(format, outer, inner));
  q.amax = static_cast<float*>(tensor(purpose, DType::kF32, {1}).data);
  return q;
}

Operand Allocator::operand(std::string_view purpose, const OperandSpec& spec, int64_t m, int64_t k) {
  Operand x;
  if (spec.rowwise) x.rowwise = quantized(purpose, *spec.rowwise, m, k);
  if (spec.columnwise) x.columnwise = quantized(purpose, *spec.columnwise, k, m);
  if (spec.amax_before_rounding) x.producer_amax = static_cast<float*>(tensor(purpose, DType::kF32, {1}).data);
  return x;
}

Tensor Region::tensor(std::string_view, DType dtype, Shape shape) {
  const int64_t bytes = ceil_div(bytes_of(dtype, shape.count()), Arena::kAlignment) * Arena::kAlignment;
  Tensor t(base_ ? base_ + used_ : nullptr, dtype, shape);
  used_ += bytes;
  check(!base_ || used_ <= peak_, "region {}: {} bytes wanted, {} planned", purpose_, used_, peak_);
  if (!base_ && used_ > peak_) peak_ = used_;
  return t;
}

void Region::within(Arena& arena, const std::function<void()>& users) {
  if (arena.counting()) {
    users();
    arena.tensor(purpose_, DType::kU8, {peak_});
  } else {
    base_ = static_cast<std::byte*>(arena.tensor(purpose_, DType::kU8, {peak_}).data);
    users();
  }
}

}  // namespace mantissa
