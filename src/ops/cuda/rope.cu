// RoPE, alone and behind the norm of the heads. Where a head is whole 16-byte groups, each of a few lanes holds a group
// of its first half and their partners of the second. Other heads take a warp each. Whoever reads an element writes it,
// so all of it works in place.
#include "ops/rope.h"

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

// A lane's part of a head: the groups at `at` and `at + half`. kLanes of them a head, of which the last may idle.
struct Part {
  int at, half;
  bool active;
};
template <int kLanes>
__device__ __forceinline__ Part part_of(int dim) {
  const int at = threadIdx.x % kLanes * kWide, half = dim / 2;
  return {at, half, at < half};
}

// Two heads' parts a thread, which share their token's angles; `heads` of a token are touched: all of them, or in place
// q and k alone.
template <bool kNorm, int kLanes, class T>
__global__ void __launch_bounds__(kThreads) rope_kernel(const Args a, uint32_t items, int heads) {
  const Part part = part_of<kLanes>(a.dim);
  const uint32_t item = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes, pairs = (heads + 1) / 2,
                 t = item / pairs;
  const int first = static_cast<int>(item - t * pairs) * 2;
  const bool ok = part.active && item < items;
  const int64_t at = t * a.cols() + int64_t{first} * a.dim + part.at;
  Packed<T> low[2] = {}, high[2] = {};
  Wide cos{}, sin{};
  if (ok) {
    const int32_t position = a.positions[t];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      if (first + u >= heads) continue;
      low[u] = load_packed(static_cast<const T*>(a.x) + at + u * a.dim);
      high[u] = load_packed(static_cast<const T*>(a.x) + at + u * a.dim + part.half);
    }
    if (first < a.rotated()) {
      const float* angles = a.cos_sin + int64_t{position} * a.dim + part.at;
      cos = load_wide(angles), sin = load_wide(angles + part.half);
    }
  }
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    const int h = first + u;
    T* y = static_cast<T*>(a.y) + at + u * a.dim;
    Wide x_low = widen(low[u]), x_high = widen(high[u]);
    float rstd = 1;
    if constexpr (kNorm) {
      float squares = 0;
#pragma unroll
      for (int k = 0; k < kWide; ++k) squares += x_low.x[k] * x_low.x[k] + x_high.x[k] * x_high.x[k];
      rstd = rsqrtf(lanes_sum<kLanes>(squares) / static_cast<float>(a.dim) + a.eps);
    }
    if (!ok || h >= heads) continue;
    if (h >= a.rotated()) {
      store_packed(y, low[u]);
      store_packed(y + part.half, high[u]);
      continue;
    }
    if constexpr (kNorm) {
      if (part.at == 0) a.rstd[int64_t{t} * a.rotated() + h] = rstd;
      const T* weight = static_cast<const T*>(h < a.heads ? a.q_weight : a.k_weight) + part.at;
      const Wide w_low = load_wide(weight), w_high = load_wide(weight + part.half);
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        x_low.x[k] *= rstd * w_low.x[k];
        x_high.x[k] *= rstd * w_high.x[k];
      }
    }
    Wide y_low, y_high;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const float s = a.sign * sin.x[k];
      y_low.x[k] = x_low.x[k] * cos.x[k] - x_high.x[k] * s;
      y_high.x[k] = x_high.x[k] * cos.x[k] + x_low.x[k] * s;
    }
    store_wide(y, y_low);
    store_wide(y + part.half, y_high);
  }
}

// With n = dy rotated back and h = x rstd: dweight = n h, dx = rstd (g - h mean(g h)), g = n weight; rstd is drawn into
// the angles, which leaves dx = g' - x rstd² mean(g' x). The q heads of all tokens, then the k heads, so that one set
// of weight gradients stands in registers. Lanes take two heads of a token at a time, which share its angles.
template <int kLanes, class T>
__global__ void __launch_bounds__(kBwdThreads, 1) qk_norm_rope_bwd_kernel(const Args a) {
  constexpr int kSlots = kWarp / kLanes, kWarps = kBwdThreads / kWarp;
  __shared__ __align__(16) float sums[kWarps][2 * kWide * kLanes];
  const Part part = part_of<kLanes>(a.dim);
  const float inverse = 1.0f / static_cast<float>(a.dim);
  wait_for_last();
  let_next_begin();
  const int warp = threadIdx.x / kWarp, slot = threadIdx.x % kWarp / kLanes;
  const uint32_t step = gridDim.x * kWarps * kSlots, first_item = (blockIdx.x * kWarps + warp) * kSlots;
#pragma unroll 1
  for (int kind = 0; kind < 2; ++kind) {
    const int first = kind ? a.heads : 0, count = kind ? a.kv_heads : a.heads;
    const uint32_t pairs = (count + 1) / 2, items = static_cast<uint32_t>(a.tokens) * pairs;
    const T* weight = static_cast<const T*>(kind ? a.k_weight : a.q_weight) + part.at;
    Packed<T> w[2] = {};
    if (part.active) w[0] = load_packed(weight), w[1] = load_packed(weight + part.half);
    Wide dweight[2] = {};
    uint32_t item = first_item + slot;
    int32_t next = item < items ? a.positions[item / pairs] : 0;
    for (uint32_t base = first_item; base < items; base += step, item += step) {
      const uint32_t t = item / pairs;
      const int h = static_cast<int>(item - t * pairs) * 2;
      const bool ok = part.active && item < items;
      const int32_t position = next;
      const int64_t at = t * a.cols() + int64_t{first + h} * a.dim + part.at;
      Packed<T> x[2][2] = {}, dy[2][2] = {};
      float rstd[2] = {};
      Wide cos{}, sin{};
      if (ok) {
        const float* angles = a.cos_sin + int64_t{position} * a.dim + part.at;
        cos = load_wide(angles), sin = load_wide(angles + part.half);
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          if (h + u >= count) continue;
          rstd[u] = a.rstd[int64_t{t} * a.rotated() + first + h + u];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            x[u][i] = load_packed(static_cast<const T*>(a.x) + at + u * a.dim + i * part.half);
            dy[u][i] = load_packed(static_cast<const T*>(a.dy) + at + u * a.dim + i * part.half);
          }
        }
        if (item + step < items) next = a.positions[(item + step) / pairs];
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const Wide x_low = widen(x[u][0]), x_high = widen(x[u][1]), w_low = widen(w[0]), w_high = widen(w[1]);
        Wide g_low = widen(dy[u][0]), g_high = widen(dy[u][1]);
        float dot = 0;
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          const float c = cos.x[k] * rstd[u], s = sin.x[k] * rstd[u];
          const float n_low = g_low.x[k] * c + g_high.x[k] * s, n_high = g_high.x[k] * c - g_low.x[k] * s;
          dweight[0].x[k] += n_low * x_low.x[k];
          dweight[1].x[k] += n_high * x_high.x[k];
          g_low.x[k] = n_low * w_low.x[k];
          g_high.x[k] = n_high * w_high.x[k];
          dot += g_low.x[k] * x_low.x[k] + g_high.x[k] * x_high.x[k];
        }
        const float slope = -lanes_sum<kLanes>(dot) * inverse * rstd[u] * rstd[u];
        if (!ok || h + u >= count) continue;
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          g_low.x[k] += x_low.x[k] * slope;
          g_high.x[k] += x_high.x[k] * slope;
        }
        T* p = static_cast<T*>(a.y) + at + u * a.dim;
        store_wide(p, g_low);
        store_wide(p + part.half, g_high);
      }
    }
    // The warp's heads, then the block's warps, in their order.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < kWide; ++k)
#pragma unroll
        for (int shift = kLanes; shift < kWarp; shift *= 2)
          dweight[i].x[k] += __shfl_xor_sync(0xffffffffu, dweight[i].x[k], shift);
      if (part.active && slot == 0) store_wide(&sums[warp][part.at + i * part.half], dweight[i]);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < a.dim; c += kBwdThreads) {
      float sum = sums[0][c];
      for (int i = 1; i < kWarps; ++i) sum += sums[i][c];
      a.partial[(int64_t{blockIdx.x} * 2 + kind) * a.dim + c] = sum;
    }
    __syncthreads();
  }
  if (a.y == a.dy) return;
  // The v heads.
  const int groups = a.kv_heads * a.dim / kWide;
  for (int64_t i = int64_t{blockIdx.x} * kBwdThreads + threadIdx.x; i < a.tokens * groups;
       i += int64_t{gridDim.x} * kBwdThreads) {
    const int64_t t = i / groups, at = t * a.cols() + int64_t{a.rotated()} * a.dim + (i - t * groups) * kWide;
    store_packed(static_cast<T*>(a.y) + at, load_packed(static_cast<const T*>(a.dy) + at));
  }
}

// Any head: a warp each, over all heads of all tokens in turn. One warp a block; its partial row of the weight
// gradients lies in memory from the start.
enum class Mode { kRope, kNormFwd, kNormBwd };
template <Mode kMode, class T>
__global__ void __launch_bounds__(kWarp) rope_any_kernel(const Args a) {
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
  // Items are counted in 32 bits.
  if (a.dim % 2 || !whole || a.dim > 256 || a.tokens * (a.heads + 2 * a.kv_heads) >= int64_t{1} << 27) return 0;
  int lanes = 2;
  while (lanes * 2 * kWide < a.dim) lanes *= 2;
  return lanes;
}

constexpr const char* kSlow =
    "heads are not whole aligned groups of 16 elements, up to 256 of them: a warp each, element by element";

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
void run_forward(const char* op, Exec& exec, DType dtype, const Args& args) {
  if (args.tokens == 0) return;
  CudaDevice& device = device_of(exec);
  const int lanes = lanes_of(args);
  if (lanes == 0) device.say_slow(op, kSlow);
  const auto run = [&]<class T>(T) {
    if (lanes == 0) {
      const int64_t items = args.tokens * (args.heads + 2 * args.kv_heads);
      const Grid grid{.blocks = static_cast<unsigned>(std::min<int64_t>(items, 32 * device.multiprocessors())),
                      .threads = kWarp};
      return launch(device, grid, rope_any_kernel < kNorm ? Mode::kNormFwd : Mode::kRope, T >, args);
    }
    const int heads = args.heads + args.kv_heads + (args.y == args.x ? 0 : args.kv_heads);
    const auto items = static_cast<uint32_t>(args.tokens * ceil_div(heads, 2));
    const Grid grid{.blocks = static_cast<unsigned>(ceil_div(int64_t{items} * lanes, kThreads)), .threads = kThreads};
    with_lanes(lanes,
               [&](auto n) { launch(device, grid, rope_kernel<kNorm, decltype(n)::value, T>, args, items, heads); });
  };
  with_float(dtype, run);
}

}  // namespace

void rope_fwd(Exec& exec, Tensor y, ConstTensor x, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  const OpScope scope(exec, "rope_fwd");
  run_forward<false>("rope_fwd", exec, x.dtype, args_of(y, x, cos_sin, positions, layout));
}

void rope_bwd(Exec& exec, Tensor dx, ConstTensor dy, ConstTensor cos_sin, ConstTensor positions,
              const HeadLayout& layout) {
  const OpScope scope(exec, "rope_bwd");
  Args args = args_of(dx, dy, cos_sin, positions, layout);
  args.sign = -1;
  run_forward<false>("rope_bwd", exec, dy.dtype, args);
}

void qk_norm_rope_fwd(Exec& exec, Tensor y, Tensor rstd, ConstTensor x, ConstTensor q_weight, ConstTensor k_weight,
                      ConstTensor cos_sin, ConstTensor positions, const HeadLayout& layout, float eps) {
  const OpScope scope(exec, "qk_norm_rope_fwd");
  Args args = args_of(y, x, cos_sin, positions, layout);
  args.q_weight = q_weight.data, args.k_weight = k_weight.data;
  args.rstd = rstd.as<float>(), args.eps = eps;
  run_forward<true>("qk_norm_rope_fwd", exec, x.dtype, args);
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
  if (lanes == 0) device.say_slow(op, kSlow);
  int64_t blocks = std::min(args.tokens, kRowReductionBlocks);
  if (lanes) blocks = std::min({ceil_div(args.tokens, kBwdThreads / kWarp), int64_t{device.multiprocessors()}, blocks});
  args.partial = partial_rows(op, exec, blocks, 2 * layout.head_dim);
  const Grid grid{
      .blocks = static_cast<unsigned>(blocks), .threads = lanes ? kBwdThreads : kWarp, .follows = lanes != 0};
  const auto run = [&]<class T>(T) {
    if (lanes == 0) return launch(device, grid, rope_any_kernel<Mode::kNormBwd, T>, args);
    with_lanes(lanes, [&](auto n) { launch(device, grid, qk_norm_rope_bwd_kernel<decltype(n)::value, T>, args); });
  };
  with_float(x.dtype, run);
  add_partials(exec, args.partial, blocks, dq_weight, dk_weight);
}

}  // namespace mantissa::cuda
