// SwiGLU and GELU: one thread a group of eight outputs.
#include "ops/activation.h"

#include "ops/cuda/common/fp8_tile.cuh"
#include "ops/cuda/common/operand.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/quantize.h"

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

__device__ __forceinline__ float gelu_grad(float d, float u) {
  const float s = gelu_gate(u);
  const float slope = 2.0f * kGeluScale * (1.0f + 3.0f * kGeluCubic * u * u);
  return d * (s + u * (s * (1.0f - s)) * slope);
}

__device__ __forceinline__ float swiglu(float gate, float up) { return gate * sigmoid(gate) * up; }

// silu'(g) = s (1 + g (1 - s)), s = sigmoid(g).
struct SwigluGrad {
  float gate, up;
};
__device__ __forceinline__ SwigluGrad swiglu_grad(float d, float gate, float up) {
  const float s = sigmoid(gate), silu = gate * s;
  return {d * up * (s * (1.0f + gate * (1.0f - s))), d * silu};
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
      v.x[k] = swiglu(gate.x[k], up.x[k]);
      largest = larger_magnitude(largest, v.x[k]);
    }
    store_group<kAligned>(y + int64_t{g.row} * cols + g.col, v, g.count);
  }
  raise_amax(amax, largest);
}

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
      const SwigluGrad grad = swiglu_grad(d.x[k], gate.x[k], up.x[k]);
      dgate.x[k] = grad.gate, dup.x[k] = grad.up;
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
      v.x[k] = gelu_grad(d.x[k], u.x[k]);
      largest = larger_magnitude(largest, v.x[k]);
    }
    store_group<kAligned>(dx + i, v, count);
  }
  raise_amax(amax, largest);
}

// ---- with the cast: FP8 codes of the unrounded values under a scale that is known before ----

__device__ __forceinline__ float largest_of(float largest, const Wide& v) {
#pragma unroll
  for (int i = 0; i < kWide; ++i) largest = larger_magnitude(largest, v.x[i]);
  return largest;
}

// The codes of a tile at column col0 of [rows, stride], whose own columns end at col_end.
__device__ __forceinline__ void store_tile(const TensorCast& cast, const Fp8Tile& tile, int64_t first_col, int64_t rows,
                                           int64_t stride, int64_t cols, const Codes& codes, TurnedTile& shared) {
  Fp8Tile there = tile;
  there.col += first_col;
  if (cast.rowwise) store_codes(cast.rowwise, there, stride, codes);
  if (cast.columnwise)
    store_turned(cast.columnwise, Fp8Tile::row0(), Fp8Tile::col0() + first_col, rows, first_col + cols, codes, shared);
}

template <DType kElement, class X>
__global__ void __launch_bounds__(kThreads)
    swiglu_fwd_cast_kernel(const TensorCast cast, const X* x, int64_t rows, int64_t cols) {
  __shared__ TurnedTile shared;
  const Fp8Tile tile = Fp8Tile::of_block(rows, cols);
  const float scale = *cast.scale;
  store_scale_inv(cast, scale);
  float largest = 0;
  Codes codes{};
  if (tile.inside) {
    const X* p = x + tile.row * 2 * cols + tile.col;
    Packed<X> gate[Fp8Tile::kSquare], up[Fp8Tile::kSquare];
#pragma unroll
    for (int r = 0; r < Fp8Tile::kSquare; ++r)
      gate[r] = load_packed(p + r * 2 * cols), up[r] = load_packed(p + (2 * r + 1) * cols);
#pragma unroll
    for (int r = 0; r < Fp8Tile::kSquare; ++r) {
      const Wide g = widen(gate[r]), u = widen(up[r]);
      Wide v;
#pragma unroll
      for (int i = 0; i < kWide; ++i) v.x[i] = swiglu(g.x[i], u.x[i]);
      largest = largest_of(largest, v);
      codes.rows[r] = encode_eight<kElement>(v, scale);
    }
  }
  store_tile(cast, tile, 0, rows, cols, cols, codes, shared);
  raise_amax(cast.raised, largest);
}

template <DType kElement, class X>
__global__ void __launch_bounds__(kThreads)
    swiglu_bwd_cast_kernel(const TensorCast cast, const X* dy, const X* x, int64_t rows, int64_t cols) {
  __shared__ TurnedTile shared_gate, shared_up;
  const Fp8Tile tile = Fp8Tile::of_block(rows, cols);
  const float scale = *cast.scale;
  store_scale_inv(cast, scale);
  float largest = 0;
  Codes gates{}, ups{};
  if (tile.inside) {
    const X* p = x + tile.row * 2 * cols + tile.col;
    const X* d = dy + tile.row * cols + tile.col;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      constexpr int kRows = Fp8Tile::kSquare / 2;
      Packed<X> gate[kRows], up[kRows], grad[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int r = half * kRows + i;
        gate[i] = load_packed(p + r * 2 * cols), up[i] = load_packed(p + (2 * r + 1) * cols);
        grad[i] = load_packed(d + r * cols);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Wide g = widen(gate[i]), u = widen(up[i]), dv = widen(grad[i]);
        Wide dgate, dup;
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          const SwigluGrad both = swiglu_grad(dv.x[k], g.x[k], u.x[k]);
          dgate.x[k] = both.gate, dup.x[k] = both.up;
        }
        largest = largest_of(largest_of(largest, dgate), dup);
        gates.rows[half * kRows + i] = encode_eight<kElement>(dgate, scale);
        ups.rows[half * kRows + i] = encode_eight<kElement>(dup, scale);
      }
    }
  }
  store_tile(cast, tile, 0, rows, 2 * cols, cols, gates, shared_gate);
  store_tile(cast, tile, cols, rows, 2 * cols, cols, ups, shared_up);
  raise_amax(cast.raised, largest);
}

// Forward (dy null) or backward of GELU; `high` [rows, cols] may be null.
template <DType kElement, class X>
__global__ void __launch_bounds__(kThreads)
    gelu_cast_kernel(const TensorCast cast, float* high, const X* dy, const X* x, int64_t rows, int64_t cols) {
  __shared__ TurnedTile shared;
  const Fp8Tile tile = Fp8Tile::of_block(rows, cols);
  const float scale = *cast.scale;
  store_scale_inv(cast, scale);
  float largest = 0;
  Codes codes{};
  if (tile.inside) {
    const int64_t at = tile.row * cols + tile.col;
    Packed<X> value[Fp8Tile::kSquare], grad[Fp8Tile::kSquare] = {};
#pragma unroll
    for (int r = 0; r < Fp8Tile::kSquare; ++r) {
      value[r] = load_packed(x + at + r * cols);
      if (dy) grad[r] = load_packed(dy + at + r * cols);
    }
#pragma unroll
    for (int r = 0; r < Fp8Tile::kSquare; ++r) {
      const Wide u = widen(value[r]), d = widen(grad[r]);
      Wide v;
#pragma unroll
      for (int i = 0; i < kWide; ++i) v.x[i] = dy ? gelu_grad(d.x[i], u.x[i]) : u.x[i] * gelu_gate(u.x[i]);
      largest = largest_of(largest, v);
      if (high) store_wide(high + at + r * cols, v);
      codes.rows[r] = encode_eight<kElement>(v, scale);
    }
  }
  store_tile(cast, tile, 0, rows, cols, cols, codes, shared);
  raise_amax(cast.raised, largest);
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

void swiglu_fwd_high(Exec& exec, const Operand& y, ConstTensor x) {
  const OpScope scope(exec, "swiglu_fwd");
  start_operand(exec, y);
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

void swiglu_bwd_high(Exec& exec, const Operand& dx, ConstTensor dy, ConstTensor x) {
  const OpScope scope(exec, "swiglu_bwd");
  start_operand(exec, dx);
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

void gelu_fwd_high(Exec& exec, const Operand& y, ConstTensor x) {
  const OpScope scope(exec, "gelu_fwd");
  start_operand(exec, y);
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

void gelu_bwd_high(Exec& exec, const Operand& dx, ConstTensor dy, ConstTensor x) {
  const OpScope scope(exec, "gelu_bwd");
  start_operand(exec, dx);
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

// Whether the cast is part of the op: forms that a TensorCast writes from unrounded values. y [rows, cols], made of x.
bool casts_too(const Operand& y, const ConstTensor& x, std::initializer_list<const void*> addresses, int64_t rows,
               int64_t cols) {
  return y.high.dtype == DType::kF32 && x.dtype == DType::kBF16 && rows > 0 && whole_groups(kWide, addresses) &&
         cols % 16 == 0 && takes_tensor_cast(y, rows, y.high.cols());
}

bool reads_high(const Exec& exec, const Operand& y) { return y.high_read || exec.keeps_high; }

DType element_of(const Operand& y) { return (y.rowwise ? y.rowwise : y.columnwise).format.element; }

}  // namespace

void swiglu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  const int64_t rows = x.dim(0), cols = x.dim(1) / 2;
  if (reads_high(exec, y) || !casts_too(y, x, {x.data}, rows, cols)) {
    swiglu_fwd_high(exec, y, x);
    return mantissa::quantize(exec, y);
  }
  const OpScope scope(exec, "swiglu_fwd");
  with_fp8(element_of(y), [&](auto element) {
    launch(device_of(exec), tile_grid(rows, cols), swiglu_fwd_cast_kernel<decltype(element)::value, Bf16>,
           tensor_cast(exec, y), static_cast<const Bf16*>(x.data), rows, cols);
  });
}

void swiglu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  const int64_t rows = x.dim(0), cols = x.dim(1) / 2;
  if (reads_high(exec, dx) || !casts_too(dx, x, {x.data, dy.data}, rows, cols)) {
    swiglu_bwd_high(exec, dx, dy, x);
    return mantissa::quantize(exec, dx);
  }
  const OpScope scope(exec, "swiglu_bwd");
  with_fp8(element_of(dx), [&](auto element) {
    launch(device_of(exec), tile_grid(rows, cols), swiglu_bwd_cast_kernel<decltype(element)::value, Bf16>,
           tensor_cast(exec, dx), static_cast<const Bf16*>(dy.data), static_cast<const Bf16*>(x.data), rows, cols);
  });
}

namespace {

// One of both directions: dy is null in the forward.
void gelu_cast(const char* op, Exec& exec, const Operand& y, ConstTensor dy, ConstTensor x) {
  const OpScope scope(exec, op);
  const int64_t rows = x.dim(0), cols = x.dim(1);
  with_fp8(element_of(y), [&](auto element) {
    launch(device_of(exec), tile_grid(rows, cols), gelu_cast_kernel<decltype(element)::value, Bf16>,
           tensor_cast(exec, y), reads_high(exec, y) ? y.high.as<float>() : nullptr, static_cast<const Bf16*>(dy.data),
           static_cast<const Bf16*>(x.data), rows, cols);
  });
}

}  // namespace

void gelu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  if (casts_too(y, x, {x.data, y.high.data}, x.dim(0), x.dim(1))) return gelu_cast("gelu_fwd", exec, y, {}, x);
  gelu_fwd_high(exec, y, x);
  mantissa::quantize(exec, y);
}

void gelu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  if (casts_too(dx, x, {x.data, dy.data, dx.high.data}, x.dim(0), x.dim(1)))
    return gelu_cast("gelu_bwd", exec, dx, dy, x);
  gelu_bwd_high(exec, dx, dy, x);
  mantissa::quantize(exec, dx);
}

}  // namespace mantissa::cuda
