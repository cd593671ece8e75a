// SwiGLU and GELU: one thread a group of eight outputs.
#include "ops/activation.h"

#include "ops/cuda/common/operand.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

// Within 2e-7 of its value and more; 0 and 1 at the ends.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x³).
__device__ __forceinline__ float gelu_gate(float x) {
  return sigmoid(2.0f * kGeluScale * (x + kGeluCubic * x * x * x));
}

// Where a thread's group lies: columns [col, col + count) of a row of F. `groups` of them a row, the last may be short.
struct Group {
  uint32_t row, col;
  int count;
};
__device__ __forceinline__ Group group_of(uint32_t index, uint32_t groups, uint32_t cols) {
  const uint32_t row = index / groups, col = (index - row * groups) * kWide;
  return {row, col, static_cast<int>(min(static_cast<uint32_t>(kWide), cols - col))};
}

template <bool kAligned, class Y, class X>
__global__ void __launch_bounds__(kThreads)
    swiglu_fwd_kernel(Y* y, const X* x, uint32_t total, uint32_t groups, uint32_t cols, float* amax) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  float largest = 0;
  if (index < total) {
    const Group g = group_of(index, groups, cols);
    const X* p = x + int64_t{g.row} * 2 * cols + g.col;
    const Wide gate = load_group<kAligned>(p, g.count), up = load_group<kAligned>(p + cols, g.count);
    Wide v;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      v.x[k] = gate.x[k] * sigmoid(gate.x[k]) * up.x[k];
      largest = larger_magnitude(largest, v.x[k]);
    }
    store_group<kAligned>(y + int64_t{g.row} * cols + g.col, v, g.count);
  }
  raise_amax(amax, largest);
}

// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g).
template <bool kAligned, class D, class X>
__global__ void __launch_bounds__(kThreads)
    swiglu_bwd_kernel(D* dx, const X* dy, const X* x, uint32_t total, uint32_t groups, uint32_t cols, float* amax) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  float largest = 0;
  if (index < total) {
    const Group g = group_of(index, groups, cols);
    const int64_t at = int64_t{g.row} * 2 * cols + g.col;
    const Wide gate = load_group<kAligned>(x + at, g.count), up = load_group<kAligned>(x + at + cols, g.count);
    const Wide d = load_group<kAligned>(dy + int64_t{g.row} * cols + g.col, g.count);
    Wide dgate, dup;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const float s = sigmoid(gate.x[k]), silu = gate.x[k] * s;
      dgate.x[k] = d.x[k] * up.x[k] * (s * (1.0f + gate.x[k] * (1.0f - s)));
      dup.x[k] = d.x[k] * silu;
      largest = larger_magnitude(larger_magnitude(largest, dgate.x[k]), dup.x[k]);
    }
    store_group<kAligned>(dx + at, dgate, g.count);
    store_group<kAligned>(dx + at + cols, dup, g.count);
  }
  raise_amax(amax, largest);
}

template <bool kAligned, class Y, class X>
__global__ void __launch_bounds__(kThreads) gelu_fwd_kernel(Y* y, const X* x, int64_t n, float* amax) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  float largest = 0;
  if (i < n) {
    const int count = static_cast<int>(min(int64_t{kWide}, n - i));
    Wide v = load_group<kAligned>(x + i, count);
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      v.x[k] *= gelu_gate(v.x[k]);
      largest = larger_magnitude(largest, v.x[k]);
    }
    store_group<kAligned>(y + i, v, count);
  }
  raise_amax(amax, largest);
}

template <bool kAligned, class D, class X>
__global__ void __launch_bounds__(kThreads) gelu_bwd_kernel(D* dx, const X* dy, const X* x, int64_t n, float* amax) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  float largest = 0;
  if (i < n) {
    const int count = static_cast<int>(min(int64_t{kWide}, n - i));
    const Wide u = load_group<kAligned>(x + i, count), d = load_group<kAligned>(dy + i, count);
    Wide v;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const float s = gelu_gate(u.x[k]);
      const float slope = 2.0f * kGeluScale * (1.0f + 3.0f * kGeluCubic * u.x[k] * u.x[k]);
      v.x[k] = d.x[k] * (s + u.x[k] * (s * (1.0f - s)) * slope);
      largest = larger_magnitude(largest, v.x[k]);
    }
    store_group<kAligned>(dx + i, v, count);
  }
  raise_amax(amax, largest);
}

// Calls f with std::bool_constant.
template <class F>
void with_aligned(bool aligned, F&& f) {
  aligned ? f(std::true_type{}) : f(std::false_type{});
}

struct GroupGrid {
  uint32_t total = 0, groups = 0, cols = 0;
  Grid grid;
};
GroupGrid group_grid(const char* op, const ConstTensor& out) {
  const int64_t groups = ceil_div(out.dim(1), kWide), total = out.dim(0) * groups;
  check(total < int64_t{1} << 31, "{}: {} is {} groups of eight, expected fewer than 2^31", op, out, total);
  return {static_cast<uint32_t>(total),
          static_cast<uint32_t>(groups),
          static_cast<uint32_t>(out.dim(1)),
          {.blocks = static_cast<unsigned>(ceil_div(total, kThreads)), .threads = kThreads}};
}

Grid flat_grid(int64_t n) {
  return {.blocks = static_cast<unsigned>(ceil_div(n, int64_t{kThreads} * kWide)), .threads = kThreads};
}

}  // namespace

void swiglu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  const OpScope scope(exec, "swiglu_fwd");
  start_operand("swiglu_fwd", exec, y);
  if (x.count() == 0) return;
  const GroupGrid g = group_grid("swiglu_fwd", y.high);
  with_aligned(whole_groups(g.cols, {y.high.data, x.data}), [&](auto aligned) {
    visit_float(y.high, [&]<class Y>(Y* yp) {
      visit_float(x, [&]<class X>(const X* xp) {
        launch(device_of(exec), g.grid, swiglu_fwd_kernel<decltype(aligned)::value, Y, X>, yp, xp, g.total, g.groups,
               g.cols, y.producer_amax);
      });
    });
  });
}

void swiglu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  const OpScope scope(exec, "swiglu_bwd");
  start_operand("swiglu_bwd", exec, dx);
  if (x.count() == 0) return;
  const GroupGrid g = group_grid("swiglu_bwd", dy);
  with_aligned(whole_groups(g.cols, {dx.high.data, dy.data, x.data}), [&](auto aligned) {
    visit_float(dx.high, [&]<class D>(D* dp) {
      visit_float(x, [&]<class X>(const X* xp) {
        launch(device_of(exec), g.grid, swiglu_bwd_kernel<decltype(aligned)::value, D, X>, dp,
               static_cast<const X*>(dy.data), xp, g.total, g.groups, g.cols, dx.producer_amax);
      });
    });
  });
}

void gelu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  const OpScope scope(exec, "gelu_fwd");
  start_operand("gelu_fwd", exec, y);
  const int64_t n = x.count();
  if (n == 0) return;
  with_aligned(whole_groups(n, {y.high.data, x.data}), [&](auto aligned) {
    visit_float(y.high, [&]<class Y>(Y* yp) {
      visit_float(x, [&]<class X>(const X* xp) {
        launch(device_of(exec), flat_grid(n), gelu_fwd_kernel<decltype(aligned)::value, Y, X>, yp, xp, n,
               y.producer_amax);
      });
    });
  });
}

void gelu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  const OpScope scope(exec, "gelu_bwd");
  start_operand("gelu_bwd", exec, dx);
  const int64_t n = x.count();
  if (n == 0) return;
  with_aligned(whole_groups(n, {dx.high.data, dy.data, x.data}), [&](auto aligned) {
    visit_float(dx.high, [&]<class D>(D* dp) {
      visit_float(x, [&]<class X>(const X* xp) {
        launch(device_of(exec), flat_grid(n), gelu_bwd_kernel<decltype(aligned)::value, D, X>, dp,
               static_cast<const X*>(dy.data), xp, n, dx.producer_amax);
      });
    });
  });
}

}  // namespace mantissa::cuda
