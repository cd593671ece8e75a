// RoPE, alone and behind the norm of the heads. Where a head is whole 16-byte groups, each lane holds a group of the
// first half and its partners of the second; a warp takes a token, so that angles and weights stay in registers over
// its heads. Other heads take a warp each. Whoever reads an element writes it, so all of it works in place.
#include "ops/cuda/rope.h"

#include <algorithm>

#include "ops/cuda/common/partials.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/norm.h"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;     // forward
constexpr int kBwdThreads = 512;  // backward of the norm: one block a multiprocessor
constexpr int kAtOnce = 2;        // heads of a lane whose loads are in flight together

struct Args {
  int64_t tokens;
  int heads, kv_heads, dim;
  const float* cos_sin;
  const int32_t* positions;
  float sign;          // -1: rotated back
  void* y;             // backward: dx
  const void *x, *dy;  // dy: backward of the norm
  const void *q_weight, *k_weight;
  float* rstd;  // [T, N + KV]
  float eps;
  float* partial;  // [blocks, 2, D]

  __device__ __forceinline__ int rotated() const { return heads + kv_heads; }
  __device__ __forceinline__ int64_t cols() const { return int64_t{heads + 2 * kv_heads} * dim; }
};

// One lane's part of a head: groups at `at` and `at + half`.
struct Lane {
  int slot, at, half;  // slot: which of the warp's heads
  bool active;
};
template <int kLanes>
__device__ __forceinline__ Lane lane_of(int dim) {
  const int lane = threadIdx.x % kWarp, at = lane % kLanes * kWide, half = dim / 2;
  return {lane / kLanes, at, half, at < half};
}

struct Angles {
  Wide cos, sin;
};
__device__ __forceinline__ Angles angles_of(const Args& a, const Lane& lane, int32_t position) {
  Angles angles{};
  if (!lane.active) return angles;
  const float* row = a.cos_sin + int64_t{position} * a.dim + lane.at;
  angles = {load_wide(row), load_wide(row + lane.half)};
#pragma unroll
  for (int k = 0; k < kWide; ++k) angles.sin.x[k] *= a.sign;
  return angles;
}

// The v heads of a token, by one warp.
template <class T>
__device__ __forceinline__ void copy_v(const Args& a, int64_t t, const void* from) {
  const int64_t first = t * a.cols() + int64_t{a.rotated()} * a.dim;
#pragma unroll 2
  for (int i = threadIdx.x % kWarp * kWide; i < a.kv_heads * a.dim; i += kWarp * kWide)
    store_packed(static_cast<T*>(a.y) + first + i, load_packed(static_cast<const T*>(from) + first + i));
}

template <bool kNorm, int kLanes, class T>
__global__ void __launch_bounds__(kThreads, 3) rope_kernel(const Args a) {
  constexpr int kSlots = kWarp / kLanes;
  const Lane lane = lane_of<kLanes>(a.dim);
  const float inverse = 1.0f / static_cast<float>(a.dim);
  const int64_t stride = int64_t{gridDim.x} * (kThreads / kWarp);
  int64_t t = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  int32_t next = t < a.tokens ? a.positions[t] : 0;
  for (; t < a.tokens; t += stride) {
    const Angles angles = angles_of(a, lane, next);
    next = t + stride < a.tokens ? a.positions[t + stride] : 0;
    const int64_t row = t * a.cols() + lane.at;
    for (int base = 0; base < a.rotated(); base += kSlots * kAtOnce) {
      Packed<T> x[kAtOnce][2] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int h = base + u * kSlots + lane.slot;
        if (!lane.active || h >= a.rotated()) continue;
        const T* p = static_cast<const T*>(a.x) + row + int64_t{h} * a.dim;
        x[u][0] = load_packed(p);
        x[u][1] = load_packed(p + lane.half);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int h = base + u * kSlots + lane.slot;
        const bool ok = lane.active && h < a.rotated();
        Wide low = widen(x[u][0]), high = widen(x[u][1]);
        float rstd = 1;
        if constexpr (kNorm) {
          float squares = 0;
#pragma unroll
          for (int k = 0; k < kWide; ++k) squares += low.x[k] * low.x[k] + high.x[k] * high.x[k];
          rstd = rsqrtf(lanes_sum<kLanes>(squares) * inverse + a.eps);
        }
        if (!ok) continue;
        if constexpr (kNorm) {
          if (lane.at == 0) a.rstd[t * a.rotated() + h] = rstd;
          const T* weight = static_cast<const T*>(h < a.heads ? a.q_weight : a.k_weight) + lane.at;
          const Wide w_low = load_wide(weight), w_high = load_wide(weight + lane.half);
#pragma unroll
          for (int k = 0; k < kWide; ++k) {
            low.x[k] *= rstd * w_low.x[k];
            high.x[k] *= rstd * w_high.x[k];
          }
        }
        Wide y_low, y_high;
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          y_low.x[k] = low.x[k] * angles.cos.x[k] - high.x[k] * angles.sin.x[k];
          y_high.x[k] = high.x[k] * angles.cos.x[k] + low.x[k] * angles.sin.x[k];
        }
        T* p = static_cast<T*>(a.y) + row + int64_t{h} * a.dim;
        store_wide(p, y_low);
        store_wide(p + lane.half, y_high);
      }
    }
    if (a.y != a.x) copy_v<T>(a, t, a.x);
  }
}

// With n = dy rotated back and h = x rstd: dweight = n h, dx = rstd (g - h mean(g h)), g = n weight. The q heads of all
// tokens, then the k heads, so that one set of weight gradients stands in registers.
template <int kLanes, class T>
__global__ void __launch_bounds__(kBwdThreads, 1) qk_norm_rope_bwd_kernel(const Args a) {
  constexpr int kSlots = kWarp / kLanes, kWarps = kBwdThreads / kWarp;
  __shared__ __align__(16) float sums[kWarps][2 * kWide * kLanes];
  const Lane lane = lane_of<kLanes>(a.dim);
  const float inverse = 1.0f / static_cast<float>(a.dim);
  const int warp = threadIdx.x / kWarp;
  const int64_t stride = int64_t{gridDim.x} * kWarps, first_token = int64_t{blockIdx.x} * kWarps + warp;
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const int first = part ? a.heads : 0, count = part ? a.kv_heads : a.heads;
    const T* weight = static_cast<const T*>(part ? a.k_weight : a.q_weight) + lane.at;
    Packed<T> w[2] = {};
    if (lane.active) w[0] = load_packed(weight), w[1] = load_packed(weight + lane.half);
    Wide dweight[2] = {};
    int32_t next = first_token < a.tokens ? a.positions[first_token] : 0;
    for (int64_t t = first_token; t < a.tokens; t += stride) {
      const Angles angles = angles_of(a, lane, next);
      next = t + stride < a.tokens ? a.positions[t + stride] : 0;
      const int64_t row = t * a.cols() + int64_t{first} * a.dim + lane.at;
      for (int base = 0; base < count; base += kSlots * kAtOnce) {
        Packed<T> x[kAtOnce][2] = {}, dy[kAtOnce][2] = {};
        float rstd[kAtOnce] = {};
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int h = base + u * kSlots + lane.slot;
          if (!lane.active || h >= count) continue;
          const int64_t at = row + int64_t{h} * a.dim;
          x[u][0] = load_packed(static_cast<const T*>(a.x) + at);
          x[u][1] = load_packed(static_cast<const T*>(a.x) + at + lane.half);
          dy[u][0] = load_packed(static_cast<const T*>(a.dy) + at);
          dy[u][1] = load_packed(static_cast<const T*>(a.dy) + at + lane.half);
          rstd[u] = a.rstd[t * a.rotated() + first + h];
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int h = base + u * kSlots + lane.slot;
          Wide h_low = widen(x[u][0]), h_high = widen(x[u][1]);
          const Wide d_low = widen(dy[u][0]), d_high = widen(dy[u][1]);
          const Wide w_low = widen(w[0]), w_high = widen(w[1]);
          Wide g_low, g_high;
          float dot = 0;
#pragma unroll
          for (int k = 0; k < kWide; ++k) {
            h_low.x[k] *= rstd[u];
            h_high.x[k] *= rstd[u];
            const float n_low = d_low.x[k] * angles.cos.x[k] + d_high.x[k] * angles.sin.x[k];
            const float n_high = d_high.x[k] * angles.cos.x[k] - d_low.x[k] * angles.sin.x[k];
            dweight[0].x[k] += n_low * h_low.x[k];
            dweight[1].x[k] += n_high * h_high.x[k];
            g_low.x[k] = n_low * w_low.x[k];
            g_high.x[k] = n_high * w_high.x[k];
            dot += g_low.x[k] * h_low.x[k] + g_high.x[k] * h_high.x[k];
          }
          const float mean = lanes_sum<kLanes>(dot) * inverse;
          if (!lane.active || h >= count) continue;
#pragma unroll
          for (int k = 0; k < kWide; ++k) {
            g_low.x[k] = rstd[u] * (g_low.x[k] - h_low.x[k] * mean);
            g_high.x[k] = rstd[u] * (g_high.x[k] - h_high.x[k] * mean);
          }
          T* p = static_cast<T*>(a.y) + row + int64_t{h} * a.dim;
          store_wide(p, g_low);
          store_wide(p + lane.half, g_high);
        }
      }
    }
    // The warp's heads, then the block's warps, in their order.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < kWide; ++k)
#pragma unroll
        for (int step = kLanes; step < kWarp; step *= 2)
          dweight[i].x[k] += __shfl_xor_sync(0xffffffffu, dweight[i].x[k], step);
      if (lane.active && lane.slot == 0) store_wide(&sums[warp][lane.at + i * lane.half], dweight[i]);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < a.dim; c += kBwdThreads) {
      float sum = sums[0][c];
      for (int w2 = 1; w2 < kWarps; ++w2) sum += sums[w2][c];
      a.partial[(int64_t{blockIdx.x} * 2 + part) * a.dim + c] = sum;
    }
    __syncthreads();
  }
  if (a.y != a.dy)
    for (int64_t t = first_token; t < a.tokens; t += stride) copy_v<T>(a, t, a.dy);
}

// Any head: a warp each, over all heads of all tokens in turn. One warp a block; its partial row of the weight
// gradients lies in memory from the start.
enum class Mode { kRope, kNormFwd, kNormBwd };
template <Mode kMode, class T>
__global__ void __launch_bounds__(kWarp) any_kernel(const Args a) {
  const int half = a.dim / 2, heads = a.rotated() + a.kv_heads;
  const float inverse = 1.0f / static_cast<float>(a.dim);
  float* const partial = kMode == Mode::kNormBwd ? a.partial + int64_t{blockIdx.x} * 2 * a.dim : nullptr;
  if constexpr (kMode == Mode::kNormBwd) {
    for (int i = threadIdx.x; i < half; i += kWarp)
      for (int j = 0; j < 4; ++j) partial[j * half + i] = 0;
  }
  for (int64_t item = blockIdx.x; item < a.tokens * heads; item += gridDim.x) {
    const int64_t t = item / heads;
    const int h = static_cast<int>(item - t * heads);
    const int64_t at = t * a.cols() + int64_t{h} * a.dim;
    const T* x = static_cast<const T*>(a.x) + at;
    const T* dy = kMode == Mode::kNormBwd ? static_cast<const T*>(a.dy) + at : nullptr;
    T* y = static_cast<T*>(a.y) + at;
    if (h >= a.rotated()) {
      const T* from = kMode == Mode::kNormBwd ? dy : x;
      for (int i = threadIdx.x; i < a.dim && y != from; i += kWarp) y[i] = from[i];
      continue;
    }
    const float* cos_sin = a.cos_sin + int64_t{a.positions[t]} * a.dim;
    const T* weight = static_cast<const T*>(h < a.heads ? a.q_weight : a.k_weight);
    float rstd = 1, mean = 0;
    if constexpr (kMode == Mode::kNormFwd) {
      float squares = 0;
      for (int i = threadIdx.x; i < half; i += kWarp)
        squares += to_f32(x[i]) * to_f32(x[i]) + to_f32(x[i + half]) * to_f32(x[i + half]);
      rstd = rsqrtf(lanes_sum(squares) * inverse + a.eps);
      if (threadIdx.x == 0) a.rstd[t * a.rotated() + h] = rstd;
    }
    if constexpr (kMode == Mode::kNormBwd) {
      rstd = a.rstd[t * a.rotated() + h];
      float* dweight = partial + (h < a.heads ? 0 : a.dim);
      float dot = 0;
      for (int i = threadIdx.x; i < half; i += kWarp) {
        const float c = cos_sin[i], s = cos_sin[half + i], d_low = to_f32(dy[i]), d_high = to_f32(dy[i + half]);
        const float low = (d_low * c + d_high * s) * (to_f32(x[i]) * rstd);
        const float high = (d_high * c - d_low * s) * (to_f32(x[i + half]) * rstd);
        dweight[i] += low;
        dweight[i + half] += high;
        dot += low * to_f32(weight[i]) + high * to_f32(weight[i + half]);
      }
      mean = lanes_sum(dot) * inverse;
    }
    for (int i = threadIdx.x; i < half; i += kWarp) {
      const float c = cos_sin[i], s = kMode == Mode::kNormBwd ? -cos_sin[half + i] : a.sign * cos_sin[half + i];
      const T* from = kMode == Mode::kNormBwd ? dy : x;
      float low = to_f32(from[i]), high = to_f32(from[i + half]);
      if constexpr (kMode == Mode::kNormFwd) {
        low *= rstd * to_f32(weight[i]);
        high *= rstd * to_f32(weight[i + half]);
      }
      float y_low = low * c - high * s, y_high = high * c + low * s;
      if constexpr (kMode == Mode::kNormBwd) {
        y_low = rstd * (y_low * to_f32(weight[i]) - to_f32(x[i]) * rstd * mean);
        y_high = rstd * (y_high * to_f32(weight[i + half]) - to_f32(x[i + half]) * rstd * mean);
      }
      y[i] = from_f32<T>(y_low);
      y[i + half] = from_f32<T>(y_high);
    }
  }
}

Args args_of(Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout) {
  return {.tokens = x.dim(0),
          .heads = static_cast<int>(layout.heads),
          .kv_heads = static_cast<int>(layout.kv_heads),
          .dim = static_cast<int>(layout.head_dim),
          .cos_sin = cos_sin.as<float>(),
          .positions = positions.as<int32_t>(),
          .sign = 1,
          .y = y.data,
          .x = x.data,
          .dy = nullptr,
          .q_weight = nullptr,
          .k_weight = nullptr,
          .rstd = nullptr,
          .eps = 0,
          .partial = nullptr};
}

// Lanes a head, 0: not in whole groups.
int lanes_of(const Args& a) {
  const bool whole = whole_groups(a.dim / 2, {a.cos_sin, a.y, a.x, a.dy, a.q_weight, a.k_weight});
  if (a.dim % 2 || !whole || a.dim > 256) return 0;
  int lanes = 2;
  while (lanes * 2 * kWide < a.dim) lanes *= 2;
  return lanes;
}

// Calls f with std::integral_constant<int, lanes>.
template <class F>
void with_lanes(int lanes, F&& f) {
  switch (lanes) {
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 4:
      return f(std::integral_constant<int, 4>{});
    case 8:
      return f(std::integral_constant<int, 8>{});
    default:
      return f(std::integral_constant<int, 16>{});
  }
}

template <bool kNorm>
void run_forward(Exec& exec, DType dtype, const Args& args) {
  if (args.tokens == 0) return;
  CudaDevice& device = device_of(exec);
  const int lanes = lanes_of(args);
  const auto run = [&]<class T>(T) {
    if (lanes == 0) {
      const int64_t items = args.tokens * (args.heads + 2 * args.kv_heads);
      const Grid grid{.blocks = static_cast<unsigned>(std::min<int64_t>(items, 32 * device.multiprocessors())),
                      .threads = kWarp};
      return launch(device, grid, any_kernel < kNorm ? Mode::kNormFwd : Mode::kRope, T >, args);
    }
    const int64_t blocks =
        std::min<int64_t>(ceil_div(args.tokens, kThreads / kWarp), int64_t{3} * device.multiprocessors());
    const Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
    with_lanes(lanes, [&](auto n) { launch(device, grid, rope_kernel<kNorm, decltype(n)::value, T>, args); });
  };
  dtype == DType::kBF16 ? run(Bf16{}) : run(float{});
}

}  // namespace

void rope_fwd(Exec& exec, Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  const OpScope scope(exec, "rope_fwd");
  run_forward<false>(exec, x.dtype, args_of(y, x, cos_sin, positions, layout));
}

void rope_bwd(Exec& exec, Tensor dx, ConstTensor dy, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  const OpScope scope(exec, "rope_bwd");
  Args args = args_of(dx, dy, cos_sin, positions, layout);
  args.sign = -1;
  run_forward<false>(exec, dy.dtype, args);
}

void qk_norm_rope_fwd(Exec& exec, Tensor y, Tensor rstd, ConstTensor x, ConstTensor q_weight, ConstTensor k_weight,
                      ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout, float eps) {
  const OpScope scope(exec, "qk_norm_rope_fwd");
  Args args = args_of(y, x, cos_sin, positions, layout);
  args.q_weight = q_weight.data, args.k_weight = k_weight.data;
  args.rstd = rstd.as<float>(), args.eps = eps;
  run_forward<true>(exec, x.dtype, args);
}

void qk_norm_rope_bwd(Exec& exec, Tensor dx, Tensor dq_weight, Tensor dk_weight, ConstTensor dy, ConstTensor x,
                      ConstTensor rstd, ConstTensor q_weight, ConstTensor k_weight, ConstTensor cos_sin,
                      ConstTensor positions, const HeadLayout& layout) {
  const char* op = "qk_norm_rope_bwd";
  const OpScope scope(exec, op);
  Args args = args_of(dx, x, cos_sin, positions, layout);
  args.dy = dy.data, args.q_weight = q_weight.data, args.k_weight = k_weight.data;
  args.rstd = const_cast<float*>(rstd.as<float>());
  if (args.tokens == 0) return;
  CudaDevice& device = device_of(exec);
  const int lanes = lanes_of(args);
  int64_t blocks = std::min(args.tokens, kRowReductionBlocks);
  if (lanes) blocks = std::min({ceil_div(args.tokens, kBwdThreads / kWarp), int64_t{device.multiprocessors()}, blocks});
  args.partial = partial_rows(op, exec, blocks, 2 * layout.head_dim);
  const Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = lanes ? kBwdThreads : kWarp};
  const auto run = [&]<class T>(T) {
    if (lanes == 0) return launch(device, grid, any_kernel<Mode::kNormBwd, T>, args);
    with_lanes(lanes, [&](auto n) { launch(device, grid, qk_norm_rope_bwd_kernel<decltype(n)::value, T>, args); });
  };
  x.dtype == DType::kBF16 ? run(Bf16{}) : run(float{});
  add_partials(exec, args.partial, blocks, dq_weight, dk_weight);
}

}  // namespace mantissa::cuda
