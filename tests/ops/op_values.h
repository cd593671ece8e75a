// Memory for tests of ops: values in a dtype, the instruction sets of this machine, threads for a while.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "tensor/exec.h"
#include "tests/ops/finite_difference.h"

namespace mantissa::test {

// A tensor and its memory; `values` are rounded to the dtype.
class Values {
 public:
  Values(DType dtype, Shape shape, const std::vector<float>& values) : dtype_(dtype), shape_(shape), f32_(values) {
    if (dtype == DType::kBF16) bf16_ = to_bf16(values), f32_.clear();
  }
  // Zeros.
  Values(DType dtype, Shape shape) : Values(dtype, shape, std::vector<float>(static_cast<size_t>(shape.count()))) {}

  Tensor tensor() {
    return {dtype_ == DType::kBF16 ? static_cast<void*>(bf16_.data()) : static_cast<void*>(f32_.data()), dtype_,
            shape_};
  }
  operator Tensor() { return tensor(); }       // NOLINT: implicit by design
  operator ConstTensor() { return tensor(); }  // NOLINT: implicit by design
  std::vector<float> floats() const { return dtype_ == DType::kBF16 ? to_float(bf16_) : f32_; }
  // Bitwise.
  bool operator==(const Values& other) const { return same_bits(f32_, other.f32_) && same_bits(bf16_, other.bf16_); }

 private:
  template <class T>
  static bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }

  DType dtype_;
  Shape shape_;
  std::vector<float> f32_;
  std::vector<bf16> bf16_;
};

inline Values random_values(DType dtype, Shape shape, uint32_t seed, float scale = 1) {
  return {dtype, shape, random_normal(shape.count(), seed, scale)};
}

inline std::vector<Isa> machine_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
    if (isa <= detect_isa()) isas.push_back(isa);
  return isas;
}

// Bound of relative_error() against double for results stored in `dtype`.
inline double bound_of(DType dtype) { return dtype == DType::kF32 ? kF32Bound : kBf16Bound; }

// Runs `body` with n threads.
template <class Body>
auto with_threads(int n, Body&& body) {
#ifdef _OPENMP
  const int before = omp_get_max_threads();
  omp_set_num_threads(n);
#endif
  auto result = body();
#ifdef _OPENMP
  omp_set_num_threads(before);
#endif
  return result;
}

// The message of the Error that `body` throws; "" if it throws none.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace mantissa::test
