// RMSNorm and LayerNorm. Where rows are whole 16-byte groups, a team of warps keeps a row in registers from its one
// read on. Forward: one row a team, many short-lived blocks. Backward: a block a multiprocessor, whose teams keep the
// terms of the weight gradients over all of their rows, with the next rows on their way into shared memory. Other rows
// take a block each, and read it as often as it is needed.
#include "ops/norm.h"

#include <algorithm>

#include "ops/cuda/common/operand.h"
#include "ops/cuda/common/partials.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/row_ring.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = Team::kMaxWarps * kWarp;
constexpr int kFwdWarps = 8;  // a block of the forward pass, unless a row takes more
constexpr int kStages = 2;    // rows of a team of the backward pass: the one it works on, and the next

struct FwdArgs {
  int64_t rows;
  int cols;
  float inverse;       // 1 / cols
  void* y;             // [T,H]
  float *mean, *rstd;  // [T]; mean: LayerNorm only
  void* h;             // [T,H], with r only
  const void *x, *r;   // [T,H]; r may be null
  const void *weight, *bias;
  float eps;
  float* amax;  // or null
};

struct BwdArgs {
  int64_t rows;
  int cols;
  float inverse;
  void* dx;
  const void *dy, *x, *weight;
  const float *mean, *rstd;
  const void* dresidual;  // or null
  float* partial;         // [blocks, H], LayerNorm [blocks, 2H]: dweight, then dbias
};

// How a team lies on a row: each thread holds `groups` groups of eight elements.
struct Layout {
  int groups = 0, warps = 0;  // 0: no team holds such a row
};

// Warps of a block of the backward pass: 168 registers a thread, or 128.
constexpr int bwd_warps(int groups) { return groups > 2 ? 12 : 16; }

// The fewest idle lanes, then the fewest warps.
Layout layout_of(int64_t cols, int most_groups, bool whole, bool backward) {
  Layout best;
  int64_t idle = -1;
  const int64_t groups_a_row = cols / kWide;
  for (int groups = most_groups; whole && groups > 0; --groups) {
    const int64_t warps = ceil_div(groups_a_row, int64_t{groups} * kWarp);
    const int64_t waste = warps * groups * kWarp - groups_a_row;
    if (warps > (backward ? bwd_warps(groups) : Team::kMaxWarps) || (idle >= 0 && waste >= idle)) continue;
    idle = waste;
    best = {groups, static_cast<int>(warps)};
  }
  return best;
}

// The more a thread holds the fewer fit; LayerNorm takes more registers, F32 twice as many.
template <bool kLayerNorm, class T>
constexpr int most_groups = sizeof(T) == 4 ? 2
                            : kLayerNorm   ? 3
                                           : 4;

template <bool kLayerNorm>
__device__ __forceinline__ float scaled(float x, float weight, float bias, float mean, float rstd) {
  return kLayerNorm ? weight * (rstd * (x - mean)) + bias : weight * (rstd * x);
}

// The groups of a thread in a row of `cols`. What lies behind the row's end reads its first group and counts nowhere:
// loads have no branch and are in flight together.
template <int kGroups>
struct Columns {
  int at[kGroups];
  bool own[kGroups];

  __device__ __forceinline__ Columns(const Team& team, int cols) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int column = (j * team.threads() + team.thread()) * kWide;
      own[j] = column < cols;
      at[j] = own[j] ? column : 0;
    }
  }
};

// The sum over a thread's groups of f(j, k), k in a group.
template <int kGroups, class F>
__device__ __forceinline__ float sum_of(const Columns<kGroups>& columns, F&& f) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    float two[2] = {};
#pragma unroll
    for (int k = 0; k < kWide; ++k) two[k % 2] += f(j, k);
    sum += columns.own[j] ? two[0] + two[1] : 0.0f;
  }
  return sum;
}

template <bool kLayerNorm, int kGroups, class X, class Y>
__global__ void __launch_bounds__(kThreads, 2) norm_fwd_kernel(const FwdArgs a) {
  Team team;
  const Columns<kGroups> columns(team, a.cols);
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + team.index(), at = row * a.cols;
  wait_for_last();
  let_next_begin();
  float amax = 0;
  if (row < a.rows) {
    Packed<X> packed[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) packed[j] = load_packed(static_cast<const X*>(a.x) + at + columns.at[j]);
    if (a.r) {
      Packed<X> r[kGroups];
#pragma unroll
      for (int j = 0; j < kGroups; ++j) r[j] = load_packed(static_cast<const X*>(a.r) + at + columns.at[j]);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        Wide sum = widen(packed[j]);
        const Wide other = widen(r[j]);
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum.x[k] += other.x[k];
        packed[j] = pack<X>(sum);
        if (columns.own[j]) store_packed(static_cast<X*>(a.h) + at + columns.at[j], packed[j]);
      }
    }
    Wide x[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) x[j] = widen(packed[j]);
    float mean[1] = {};
    if constexpr (kLayerNorm) {
      mean[0] = sum_of(columns, [&](int j, int k) { return x[j].x[k]; });
      team.sum(mean);
      mean[0] *= a.inverse;
#pragma unroll
      for (int j = 0; j < kGroups; ++j)
#pragma unroll
        for (int k = 0; k < kWide; ++k) x[j].x[k] -= mean[0];
    }
    float squares[1] = {sum_of(columns, [&](int j, int k) { return x[j].x[k] * x[j].x[k]; })};
    team.sum(squares);
    const float rstd = rsqrtf(squares[0] * a.inverse + a.eps);
    if (team.thread() == 0) {
      a.rstd[row] = rstd;
      if constexpr (kLayerNorm) a.mean[row] = mean[0];
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      Wide bias{};
      const Wide weight = load_wide(static_cast<const X*>(a.weight) + columns.at[j]);
      if constexpr (kLayerNorm) bias = load_wide(static_cast<const X*>(a.bias) + columns.at[j]);
#pragma unroll
      for (int k = 0; k < kWide; ++k) x[j].x[k] = scaled<kLayerNorm>(x[j].x[k], weight.x[k], bias.x[k], 0, rstd);
      if (!columns.own[j]) continue;
      store_wide(static_cast<Y*>(a.y) + at + columns.at[j], x[j]);
      if (a.amax) {
#pragma unroll
        for (int k = 0; k < kWide; ++k) amax = larger_magnitude(amax, x[j].x[k]);
      }
    }
  }
  raise_amax(a.amax, amax);
}

// Any row, one block each.
template <bool kLayerNorm, class X, class Y>
__global__ void __launch_bounds__(kThreads) norm_fwd_any_kernel(const FwdArgs a) {
  Team team;
  const float inverse = a.inverse;
  float amax = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t at = row * a.cols;
    const X* x = static_cast<const X*>(a.x) + at;
    if (a.r) {
      X* h = static_cast<X*>(a.h) + at;
      for (int i = threadIdx.x; i < a.cols; i += kThreads)
        h[i] = from_f32<X>(to_f32(x[i]) + to_f32(static_cast<const X*>(a.r)[at + i]));
      x = h;  // each thread reads what it wrote itself
    }
    float mean = 0;
    if constexpr (kLayerNorm) {
      float sum[1] = {};
      for (int i = threadIdx.x; i < a.cols; i += kThreads) sum[0] += to_f32(x[i]);
      team.sum(sum);
      mean = sum[0] * inverse;
    }
    float squares[1] = {};
    for (int i = threadIdx.x; i < a.cols; i += kThreads) squares[0] += (to_f32(x[i]) - mean) * (to_f32(x[i]) - mean);
    team.sum(squares);
    const float rstd = rsqrtf(squares[0] * inverse + a.eps);
    if (threadIdx.x == 0) {
      a.rstd[row] = rstd;
      if constexpr (kLayerNorm) a.mean[row] = mean;
    }
    for (int i = threadIdx.x; i < a.cols; i += kThreads) {
      const float bias = kLayerNorm ? to_f32(static_cast<const X*>(a.bias)[i]) : 0.0f;
      const float v = scaled<kLayerNorm>(to_f32(x[i]), to_f32(static_cast<const X*>(a.weight)[i]), bias, mean, rstd);
      amax = larger_magnitude(amax, v);
      static_cast<Y*>(a.y)[at + i] = from_f32<Y>(v);
    }
  }
  raise_amax(a.amax, amax);
}

// g = weight dy, xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)) + dresidual, dweight = dy xhat,
// dbias = dy; RMSNorm has no mean(g). `carried` is what of dx is known before the means are.
template <bool kLayerNorm, int kGroups, class T>
__global__ void __launch_bounds__(bwd_warps(kGroups) * kWarp, 1) norm_bwd_kernel(const BwdArgs a) {
  constexpr int kSums = kLayerNorm ? 2 : 1;
  extern __shared__ __align__(128) char shared[];
  __shared__ uint64_t full[Team::kMaxWarps * kStages];
  Team team;
  const int teams = blockDim.y, tensors = a.dresidual ? 3 : 2, row_bytes = a.cols * static_cast<int>(sizeof(T));
  const RowRing<kStages> ring(shared + team.index() * kStages * tensors * row_bytes, full + team.index() * kStages,
                              row_bytes, tensors);
  const Columns<kGroups> columns(team, a.cols);
  const int64_t first = int64_t{team.index()} * gridDim.x + blockIdx.x, step = int64_t{gridDim.x} * teams;
  const auto fetch = [&](int slot, int64_t row) {
    if (team.thread() != 0 || row >= a.rows) return;
    const int64_t at = row * row_bytes;
    ring.fetch(slot, static_cast<const char*>(a.x) + at, static_cast<const char*>(a.dy) + at,
               static_cast<const char*>(a.dresidual) + at);
  };
  if (team.thread() == 0) ring.prepare();
  __syncthreads();
  wait_for_last();
  let_next_begin();
#pragma unroll
  for (int s = 0; s < kStages; ++s) fetch(s, first + s * step);
  Wide weight[kGroups], dweight[kSums][kGroups] = {};  // dweight, then dbias
#pragma unroll
  for (int j = 0; j < kGroups; ++j) weight[j] = load_wide(static_cast<const T*>(a.weight) + columns.at[j]);
  float next_rstd = 0, next_mean = 0;
  const auto read_stats = [&](int64_t row) {
    if (row >= a.rows) return;
    next_rstd = a.rstd[row];
    if constexpr (kLayerNorm) next_mean = a.mean[row];
  };
  read_stats(first);
  int slot = 0;
  uint32_t parity = 0;
#pragma unroll 1
  for (int64_t row = first; row < a.rows; row += step) {
    const float rstd = next_rstd, shift = -next_mean * rstd;
    read_stats(row + step);
    const T* x = reinterpret_cast<const T*>(ring.wait(slot, parity));
    Wide xhat[kGroups], carried[kGroups];
    float sums[kSums] = {};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Wide vx = load_wide(x + columns.at[j]), dy = load_wide(x + a.cols + columns.at[j]);
      Wide past{};
      if (a.dresidual) past = load_wide(x + 2 * a.cols + columns.at[j]);
      float gx[2] = {}, g[2] = {};
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        const float gk = dy.x[k] * weight[j].x[k];
        xhat[j].x[k] = fmaf(vx.x[k], rstd, shift);
        dweight[0][j].x[k] += dy.x[k] * xhat[j].x[k];
        if constexpr (kLayerNorm) dweight[1][j].x[k] += dy.x[k];
        gx[k % 2] += gk * xhat[j].x[k];
        g[k % 2] += gk;
        carried[j].x[k] = fmaf(gk, rstd, past.x[k]);
      }
      sums[0] += columns.own[j] ? gx[0] + gx[1] : 0.0f;
      if constexpr (kLayerNorm) sums[1] += columns.own[j] ? g[0] + g[1] : 0.0f;
    }
    // The slot is read before it is filled again: each thread's reads, its fence, the team's barrier (within the sum; a
    // team of one warp has none there), the copy.
    hand_to_async();
    team.sum(sums);
    __syncwarp();
    fetch(slot, row + kStages * step);
    const float slope = -sums[0] * a.inverse * rstd, level = kLayerNorm ? -sums[kSums - 1] * a.inverse * rstd : 0.0f;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        carried[j].x[k] = fmaf(xhat[j].x[k], slope, carried[j].x[k]);
        if constexpr (kLayerNorm) carried[j].x[k] += level;
      }
      if (columns.own[j]) store_wide(static_cast<T*>(a.dx) + row * a.cols + columns.at[j], carried[j]);
    }
    if (++slot == kStages) slot = 0, parity ^= 1;
  }
  // The block's partial row: its teams' sums in their order.
  float* const rows = reinterpret_cast<float*>(shared);  // [teams, kSums, H]
  const int width = kSums * a.cols;
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSums; ++s)
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
      if (columns.own[j]) store_wide(rows + team.index() * width + s * a.cols + columns.at[j], dweight[s][j]);
  __syncthreads();
  for (int c = team.index() * team.threads() + team.thread(); c < width; c += teams * team.threads()) {
    float sum = rows[c];
    for (int t = 1; t < teams; ++t) sum += rows[t * width + c];
    a.partial[int64_t{blockIdx.x} * width + c] = sum;
  }
}

// Any row, one block each; the block's partial row lies in memory from the start.
template <bool kLayerNorm, class T>
__global__ void __launch_bounds__(kThreads) norm_bwd_any_kernel(const BwdArgs a) {
  constexpr int kSums = kLayerNorm ? 2 : 1;
  Team team;
  const float inverse = a.inverse;
  const auto* weight = static_cast<const T*>(a.weight);
  float* dweight = a.partial + int64_t{blockIdx.x} * kSums * a.cols;
  float* dbias = dweight + a.cols;
  for (int i = threadIdx.x; i < a.cols; i += kThreads) {
    dweight[i] = 0;
    if constexpr (kLayerNorm) dbias[i] = 0;
  }
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t at = row * a.cols;
    const T *x = static_cast<const T*>(a.x) + at, *dy = static_cast<const T*>(a.dy) + at;
    const float rstd = a.rstd[row], mean = kLayerNorm ? a.mean[row] : 0.0f;
    float sums[kSums] = {};
    for (int i = threadIdx.x; i < a.cols; i += kThreads) {
      const float d = to_f32(dy[i]), xhat = (to_f32(x[i]) - mean) * rstd, g = to_f32(weight[i]) * d;
      dweight[i] += d * xhat;
      sums[0] += g * xhat;
      if constexpr (kLayerNorm) {
        dbias[i] += d;
        sums[1] += g;
      }
    }
    team.sum(sums);
    const float mean_gx = sums[0] * inverse, mean_g = kLayerNorm ? sums[kSums - 1] * inverse : 0.0f;
    for (int i = threadIdx.x; i < a.cols; i += kThreads) {
      const float xhat = (to_f32(x[i]) - mean) * rstd;
      const float past = a.dresidual ? to_f32(static_cast<const T*>(a.dresidual)[at + i]) : 0.0f;
      const float v = rstd * (to_f32(weight[i]) * to_f32(dy[i]) - mean_g - xhat * mean_gx) + past;
      static_cast<T*>(a.dx)[at + i] = from_f32<T>(v);
    }
  }
}

// Said where no team holds such a row.
void say_slow_rows(CudaDevice& device, const char* op, bool whole) {
  device.say_slow(op, whole ? "rows are too wide for registers: a block each, which reads them two or three times"
                            : "rows are not whole aligned groups of 8 elements: a block each, element by element");
}

dim3 block_of(int teams, const Layout& layout) {
  return dim3(static_cast<unsigned>(layout.warps * kWarp), static_cast<unsigned>(teams));
}

// Calls f with std::integral_constant<int, groups>.
template <int kMost, class F>
void with_groups(int groups, F&& f) {
  if constexpr (kMost > 0)
    groups == kMost ? f(std::integral_constant<int, kMost>{}) : with_groups<kMost - 1>(groups, f);
}

template <bool kLayerNorm>
void norm_fwd(const char* op, Exec& exec, const Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x,
              ConstTensor r, ConstTensor weight, ConstTensor bias, float eps) {
  start_operand(exec, y);
  FwdArgs args{.rows = x.dim(0),
               .cols = static_cast<int>(x.dim(1)),
               .inverse = 1.0f / static_cast<float>(x.dim(1)),
               .y = y.high.data,
               .mean = kLayerNorm ? mean.as<float>() : nullptr,
               .rstd = rstd.as<float>(),
               .h = h.data,
               .x = x.data,
               .r = r.data,
               .weight = weight.data,
               .bias = bias.data,
               .eps = eps,
               .amax = y.producer_amax};
  if (args.rows == 0) return;
  CudaDevice& device = device_of(exec);
  const bool whole = whole_groups(x.dim(1), {y.high.data, h.data, x.data, r.data, weight.data, bias.data});
  visit_float(x, [&]<class X>(const X*) {
    visit_float(y.high, [&]<class Y>(Y*) {
      constexpr int kMost = most_groups<kLayerNorm, X>;
      const Layout layout = layout_of(args.cols, kMost, whole, false);
      if (layout.groups == 0) {
        say_slow_rows(device, op, whole);
        return launch(device,
                      {.blocks = static_cast<unsigned>(std::min<int64_t>(args.rows, 4 * device.multiprocessors())),
                       .threads = kThreads},
                      norm_fwd_any_kernel<kLayerNorm, X, Y>, args);
      }
      const int teams = std::max(1, kFwdWarps / layout.warps);
      const Grid grid{.blocks = static_cast<unsigned>(ceil_div(args.rows, int64_t{teams})),
                      .threads = block_of(teams, layout),
                      .follows = true};
      with_groups<kMost>(layout.groups, [&](auto groups) {
        launch(device, grid, norm_fwd_kernel<kLayerNorm, decltype(groups)::value, X, Y>, args);
      });
    });
  });
}

template <bool kLayerNorm>
void norm_bwd(const char* op, Exec& exec, Tensor dx, Tensor dweight, Tensor dbias, ConstTensor dy, ConstTensor x,
              ConstTensor weight, ConstTensor mean, ConstTensor rstd, ConstTensor dresidual) {
  constexpr int64_t kSums = kLayerNorm ? 2 : 1;
  BwdArgs args{.rows = x.dim(0),
               .cols = static_cast<int>(x.dim(1)),
               .inverse = 1.0f / static_cast<float>(x.dim(1)),
               .dx = dx.data,
               .dy = dy.data,
               .x = x.data,
               .weight = weight.data,
               .mean = kLayerNorm ? mean.as<float>() : nullptr,
               .rstd = rstd.as<float>(),
               .dresidual = dresidual.data,
               .partial = nullptr};
  if (args.rows == 0) return;
  CudaDevice& device = device_of(exec);
  const bool whole = whole_groups(x.dim(1), {dx.data, dy.data, x.data, weight.data, dresidual.data});
  visit_float(x, [&]<class T>(const T*) {
    constexpr int kMost = most_groups<kLayerNorm, T>;
    const Layout layout = layout_of(args.cols, kMost, whole, true);
    const int teams = layout.groups ? bwd_warps(layout.groups) / layout.warps : 1;
    const int64_t blocks =
        std::min({ceil_div(args.rows, int64_t{teams}), int64_t{device.multiprocessors()}, kRowReductionBlocks});
    args.partial = partial_rows(op, exec, blocks, kSums * args.cols);
    Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
    if (layout.groups == 0) {
      say_slow_rows(device, op, whole);
      launch(device, grid, norm_bwd_any_kernel<kLayerNorm, T>, args);
    } else {
      grid.threads = block_of(teams, layout);
      grid.follows = true;
      const int64_t columns = int64_t{teams} * args.cols;  // of all teams' rows
      grid.shared_bytes = static_cast<size_t>(std::max(columns * kStages * (dresidual ? 3 : 2) * int64_t{sizeof(T)},
                                                       columns * kSums * int64_t{sizeof(float)}));
      with_groups<kMost>(layout.groups, [&](auto groups) {
        launch(device, grid, norm_bwd_kernel<kLayerNorm, decltype(groups)::value, T>, args);
      });
    }
    add_partials(exec, args.partial, blocks, dweight, dbias);
  });
}

}  // namespace

void rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, ConstTensor x, ConstTensor weight, float eps) {
  const OpScope scope(exec, "rms_norm_fwd");
  norm_fwd<false>("rms_norm_fwd", exec, y, {}, rstd, {}, x, {}, weight, {}, eps);
}

void add_rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r, ConstTensor weight,
                      float eps) {
  const OpScope scope(exec, "add_rms_norm_fwd");
  norm_fwd<false>("add_rms_norm_fwd", exec, y, {}, rstd, h, x, r, weight, {}, eps);
}

void layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, ConstTensor x, ConstTensor weight,
                    ConstTensor bias, float eps) {
  const OpScope scope(exec, "layer_norm_fwd");
  norm_fwd<true>("layer_norm_fwd", exec, y, mean, rstd, {}, x, {}, weight, bias, eps);
}

void add_layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r,
                        ConstTensor weight, ConstTensor bias, float eps) {
  const OpScope scope(exec, "add_layer_norm_fwd");
  norm_fwd<true>("add_layer_norm_fwd", exec, y, mean, rstd, h, x, r, weight, bias, eps);
}

void rms_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, ConstTensor dy, ConstTensor x, ConstTensor weight,
                  ConstTensor rstd, ConstTensor dresidual) {
  const OpScope scope(exec, "rms_norm_bwd");
  norm_bwd<false>("rms_norm_bwd", exec, dx, dweight, {}, dy, x, weight, {}, rstd, dresidual);
}

void layer_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, Tensor dbias, ConstTensor dy, ConstTensor x,
                    ConstTensor weight, ConstTensor mean, ConstTensor rstd, ConstTensor dresidual) {
  const OpScope scope(exec, "layer_norm_bwd");
  norm_bwd<true>("layer_norm_bwd", exec, dx, dweight, dbias, dy, x, weight, mean, rstd, dresidual);
}

}  // namespace mantissa::cuda
