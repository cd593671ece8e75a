#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/elementwise.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;

// y[i] = a[i] + b[i] (b null: a[i]), eight elements a thread.
template <class Y, class A, class B>
__global__ void __launch_bounds__(kThreads) add_kernel(Y* y, const A* a, const B* b, int64_t n) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (i >= n) return;
  const int count = static_cast<int>(min(int64_t{kWide}, n - i));
  Wide va = load_wide(a + i, count);
  if (b) {
    const Wide vb = load_wide(b + i, count);
#pragma unroll
    for (int k = 0; k < kWide; ++k) va.x[k] += vb.x[k];
  }
  store_wide(y + i, va, count);
}

}  // namespace

void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b) {
  const OpScope scope(exec, "add");
  const int64_t n = y.count();
  if (n == 0) return;
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(n, int64_t{kThreads} * kWide)), .threads = kThreads};
  visit_float(y, [&]<class Y>(Y* yp) {
    visit_float(a, [&]<class A>(const A* ap) {
      visit_float(b, [&]<class B>(const B* bp) { launch(device_of(exec), grid, add_kernel<Y, A, B>, yp, ap, bp, n); });
    });
  });
}

void cast(Exec& exec, Tensor y, ConstTensor x) {
  const OpScope scope(exec, "cast");
  const int64_t n = y.count();
  if (n == 0) return;
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(n, int64_t{kThreads} * kWide)), .threads = kThreads};
  visit_float(y, [&]<class Y>(Y* yp) {
    visit_float(x, [&]<class X>(const X* xp) {
      launch(device_of(exec), grid, add_kernel<Y, X, float>, yp, xp, static_cast<const float*>(nullptr), n);
    });
  });
}

}  // namespace mantissa::cuda
