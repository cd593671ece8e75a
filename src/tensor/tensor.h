// Non-owning typed, shaped views of row-major memory. The type of an op's parameter says its direction:
// ConstTensor is read, Tensor is written.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.h"
#include "tensor/dtype.h"

namespace mantissa {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    check(static_cast<int>(dims.size()) <= kMaxRank, "shape of rank {} exceeds {}", dims.size(), kMaxRank);
    for (int64_t d : dims) dims_[rank_++] = d;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i < 0 ? i + rank_ : i]; }
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if (dims_[i] != other.dims_[i]) return false;
    return true;
  }
  std::string str() const;  // "[2,48,64]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Maps a C++ element type to its DType; FP8, FP4 and E8M0 codes are uint8_t and match any 8- or 4-bit dtype.
template <class T>
constexpr bool holds(DType dtype);

template <class Void>
struct BasicTensor {
  Void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t count() const { return shape.count(); }
  int64_t bytes() const { return bytes_of(dtype, count()); }
  int64_t dim(int i) const { return shape[i]; }
  // All leading dimensions flattened, and the last one.
  int64_t rows() const { return shape.rank() == 0 ? 1 : count() / (cols() == 0 ? 1 : cols()); }
  int64_t cols() const { return shape.rank() == 0 ? 1 : shape[-1]; }
  explicit operator bool() const { return data != nullptr; }

  // Rows [begin, begin + n) of the first dimension.
  BasicTensor slice(int64_t begin, int64_t n) const;
  BasicTensor reshape(Shape to) const {
    check(to.count() == count(), "reshape: {} has {} elements, {} wants {}", shape, count(), to, to.count());
    return {data, dtype, to};
  }
  std::string str() const { return std::string(name_of(dtype)) + shape.str(); }
};

struct Tensor : BasicTensor<void> {
  Tensor() = default;
  Tensor(void* d, DType t, Shape s) : BasicTensor<void>{d, t, s} {}
  Tensor(const BasicTensor<void>& b) : BasicTensor<void>(b) {}
  template <class T>
  T* as() const {
    check(holds<T>(dtype), "tensor {} read as another element type", *this);
    return static_cast<T*>(data);
  }
};

struct ConstTensor : BasicTensor<const void> {
  ConstTensor() = default;
  ConstTensor(const void* d, DType t, Shape s) : BasicTensor<const void>{d, t, s} {}
  ConstTensor(const BasicTensor<const void>& b) : BasicTensor<const void>(b) {}
  ConstTensor(const BasicTensor<void>& t)
      : BasicTensor<const void>{t.data, t.dtype, t.shape} {}  // NOLINT: implicit by design
  template <class T>
  const T* as() const {
    check(holds<T>(dtype), "tensor {} read as another element type", *this);
    return static_cast<const T*>(data);
  }
};

}  // namespace mantissa

// Shapes and tensors print as their str(). A message takes them as they are: check() formats only what it throws, and
// an op whose arguments are right allocates nothing.
template <>
struct fmt::formatter<mantissa::Shape> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const mantissa::Shape& shape, format_context& context) const;
};
template <class Void>
struct fmt::formatter<mantissa::BasicTensor<Void>> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const mantissa::BasicTensor<Void>& tensor, format_context& context) const {
    return fmt::format_to(context.out(), "{}{}", name_of(tensor.dtype), tensor.shape);
  }
};
template <>
struct fmt::formatter<mantissa::Tensor> : fmt::formatter<mantissa::BasicTensor<void>> {};
template <>
struct fmt::formatter<mantissa::ConstTensor> : fmt::formatter<mantissa::BasicTensor<const void>> {};

#include "tensor/tensor_inline.h"
