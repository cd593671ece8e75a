#include "ops/cpu/elementwise.h"

#include "base/parallel.h"
#include "ops/cpu/reduce.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kGrain = 8192;

template <class Y, class A, class B>
void add_all(Y* y, const A* a, const B* b, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = from_float<Y>(to_float(a[i]) + to_float(b[i]));
  });
}

template <class Y, class X>
void cast_all(Y* y, const X* x, int64_t n) {
  parallel_for(n, kGrain, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = convert<Y>(x[i]);
  });
}

template <class D>
void column_sums(const BiasBwd& a) {
  const int64_t n = a.cols;
  parallel_for(a.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* sum = a.partial + b * n;
      for (int64_t i = 0; i < n; ++i) sum[i] = 0;
      const int64_t last = (b + 1) * a.block_rows < a.rows ? (b + 1) * a.block_rows : a.rows;
      for (int64_t t = b * a.block_rows; t < last; ++t) {
        const D* dy = static_cast<const D*>(a.dy) + t * n;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sum[i] += to_float(dy[i]);
      }
    }
  });
  with_float(a.db_type,
             [&](auto t) { add_partials(static_cast<typename decltype(t)::type*>(a.db), a.partial, a.blocks, n, n); });
}

template <class T>
MANTISSA_HD double squares_of(const T* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double v = to_float(x[i]);
    sum += v * v;
  }
  return sum;
}

template <class T>
MANTISSA_HD int64_t nonfinite_in(const T* x, int64_t begin, int64_t end) {
  uint32_t found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = begin; i < end; ++i)
    found |= (std::bit_cast<uint32_t>(to_float(x[i])) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  if (!found) return -1;
  for (int64_t i = begin; i < end; ++i)
    if ((std::bit_cast<uint32_t>(to_float(x[i])) & 0x7f800000u) == 0x7f800000u) return i;
  return -1;
}

// Calls body(block, begin, end) for every block.
template <class Body>
MANTISSA_HD void for_blocks(int64_t n, int64_t block, Body&& body) {
  parallel_for((n + block - 1) / block, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b, b * block, (b + 1) * block < n ? (b + 1) * block : n);
  });
}

}  // namespace

void add(const AddArgs& a) {
  with_float(a.y_type, [&](auto y) {
    with_float(a.a_type, [&](auto left) {
      with_float(a.b_type, [&](auto right) {
        add_all(static_cast<typename decltype(y)::type*>(a.y), static_cast<const typename decltype(left)::type*>(a.a),
                static_cast<const typename decltype(right)::type*>(a.b), a.n);
      });
    });
  });
}

void cast(const CastArgs& a) {
  with_float(a.y_type, [&](auto y) {
    with_float(a.x_type, [&](auto x) {
      cast_all(static_cast<typename decltype(y)::type*>(a.y), static_cast<const typename decltype(x)::type*>(a.x), a.n);
    });
  });
}

void bias_bwd(const BiasBwd& a) {
  with_float(a.dy_type, [&](auto d) { column_sums<typename decltype(d)::type>(a); });
}

void sum_of_squares(const BlockScan& a) {
  with_float(a.type, [&](auto t) {
    const auto* x = static_cast<const typename decltype(t)::type*>(a.x);
    for_blocks(a.n, a.block,
               [&](int64_t b, int64_t begin, int64_t end) { a.squares[b] = squares_of(x + begin, end - begin); });
  });
}

void first_nonfinite(const BlockScan& a) {
  with_float(a.type, [&](auto t) {
    const auto* x = static_cast<const typename decltype(t)::type*>(a.x);
    for_blocks(a.n, a.block, [&](int64_t b, int64_t begin, int64_t end) { a.index[b] = nonfinite_in(x, begin, end); });
  });
}

}  // namespace mantissa::MANTISSA_ISA_NS
