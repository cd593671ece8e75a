// RMSNorm and LayerNorm. Where rows are whole 16-byte groups, a team of warps keeps a row in registers from its one
// read on, and the terms of the weight gradients over all of its rows; few long-lived blocks. Other rows take a block
// each, and read it as often as it is needed.
#include "ops/cuda/norm.h"

#include <algorithm>

#include "ops/cuda/common/operand.h"
#include "ops/cuda/common/partials.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = Team::kMaxWarps * kWarp;
constexpr int kFwdWarps = 8;  // a block of the forward pass, unless a row takes more

struct FwdArgs {
  int64_t rows;
  int cols, warps;     // warps a row
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
  int cols, warps;
  void* dx;
  const void *dy, *x, *weight;
  const float *mean, *rstd;
  const void* dresidual;  // or null
  float* partial;         // [blocks, H], LayerNorm [blocks, 2H]: dweight, then dbias
};

// How a team lies on a row: each thread holds `groups` groups of eight elements.
struct Layout {
  int groups = 0, warps = 0;  // 0: no team holds such a row
  int teams() const { return Team::kMaxWarps / warps; }
};

// The fewest idle lanes, then the fewest warps.
Layout layout_of(int64_t cols, int most_groups, bool whole) {
  Layout best;
  int64_t idle = -1;
  const int64_t groups_a_row = cols / kWide;
  for (int groups = most_groups; whole && groups > 0; --groups) {
    const int64_t warps = ceil_div(groups_a_row, int64_t{groups} * kWarp);
    const int64_t waste = warps * groups * kWarp - groups_a_row;
    if (warps > Team::kMaxWarps || (idle >= 0 && waste >= idle)) continue;
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

// Group j of a thread in a row of `cols`; zeros behind its end. No branch: the loads of all groups are in flight
// together.
template <class T>
__device__ __forceinline__ Packed<T> load_column(const void* row, int column, int cols) {
  return column < cols ? load_packed(static_cast<const T*>(row) + column) : Packed<T>{};
}

template <bool kLayerNorm, int kGroups, class X, class Y>
__global__ void __launch_bounds__(kThreads, 2) norm_fwd_kernel(const FwdArgs a) {
  Team team(a.warps);
  const int teams = blockDim.x / team.threads();
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const auto column = [&](int j) { return (j * team.threads() + team.thread()) * kWide; };
  float amax = 0;
  for (int64_t row = int64_t{blockIdx.x} * teams + team.index(); row < a.rows; row += int64_t{gridDim.x} * teams) {
    const int64_t at = row * a.cols;
    Packed<X> x[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) x[j] = load_column<X>(static_cast<const X*>(a.x) + at, column(j), a.cols);
    if (a.r) {
      Packed<X> r[kGroups];
#pragma unroll
      for (int j = 0; j < kGroups; ++j) r[j] = load_column<X>(static_cast<const X*>(a.r) + at, column(j), a.cols);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        Wide sum = widen(x[j]);
        const Wide other = widen(r[j]);
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum.x[k] += other.x[k];
        x[j] = pack<X>(sum);
        if (column(j) < a.cols) store_packed(static_cast<X*>(a.h) + at + column(j), x[j]);
      }
    }
    float mean = 0;
    if constexpr (kLayerNorm) {
      float sum[1] = {};
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const Wide v = widen(x[j]);
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum[0] += v.x[k];
      }
      team.sum(sum);
      mean = sum[0] * inverse;
    }
    // LayerNorm's registers do not hold weight and bias over the sum.
    Packed<X> weights[kLayerNorm ? 1 : kGroups];
    if constexpr (!kLayerNorm) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) weights[j] = load_column<X>(a.weight, column(j), a.cols);
    }
    float squares[1] = {};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Wide v = widen(x[j]);
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kWide; ++k) sum += (v.x[k] - mean) * (v.x[k] - mean);
      squares[0] += !kLayerNorm || column(j) < a.cols ? sum : 0.0f;
    }
    team.sum(squares);
    const float rstd = rsqrtf(squares[0] * inverse + a.eps);
    if (team.thread() == 0) {
      a.rstd[row] = rstd;
      if constexpr (kLayerNorm) a.mean[row] = mean;
    }
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      if (kLayerNorm && column(j) >= a.cols) continue;
      Wide v = widen(x[j]), bias{};
      const Wide weight =
          widen(kLayerNorm ? load_packed(static_cast<const X*>(a.weight) + column(j)) : weights[kLayerNorm ? 0 : j]);
      if constexpr (kLayerNorm) bias = load_wide(static_cast<const X*>(a.bias) + column(j));
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        v.x[k] = scaled<kLayerNorm>(v.x[k], weight.x[k], bias.x[k], mean, rstd);
        amax = larger_magnitude(amax, v.x[k]);
      }
      if (column(j) < a.cols) store_wide(static_cast<Y*>(a.y) + at + column(j), v);
    }
  }
  raise_amax(a.amax, amax);
}

// Any row, one block each.
template <bool kLayerNorm, class X, class Y>
__global__ void __launch_bounds__(kThreads) norm_fwd_any_kernel(const FwdArgs a) {
  Team team(Team::kMaxWarps);
  const float inverse = 1.0f / static_cast<float>(a.cols);
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

// g = weight dy, xhat = (x - mean) rstd: dx = rstd (g - mean(g) - xhat mean(g xhat)), dweight = dy xhat, dbias = dy;
// RMSNorm has no mean(g). With g' = rstd g, dx = g' - mean(g') - (x - mean) rstd² mean(g' (x - mean)).
template <bool kLayerNorm, int kGroups, class T>
__global__ void __launch_bounds__(kThreads, 1) norm_bwd_kernel(const BwdArgs a) {
  constexpr int kSums = kLayerNorm ? 2 : 1;
  let_next_begin();
  Team team(a.warps);
  const int teams = blockDim.x / team.threads();
  const float inverse = 1.0f / static_cast<float>(a.cols);
  const auto column = [&](int j) { return (j * team.threads() + team.thread()) * kWide; };
  Wide dweight[kSums][kGroups] = {};  // and dbias
  for (int64_t row = int64_t{blockIdx.x} * teams + team.index(); row < a.rows; row += int64_t{gridDim.x} * teams) {
    const int64_t at = row * a.cols;
    Packed<T> x[kGroups], dy[kGroups], past[kGroups] = {};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      x[j] = load_column<T>(static_cast<const T*>(a.x) + at, column(j), a.cols);
      dy[j] = load_column<T>(static_cast<const T*>(a.dy) + at, column(j), a.cols);
    }
    if (a.dresidual) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j)
        past[j] = load_column<T>(static_cast<const T*>(a.dresidual) + at, column(j), a.cols);
    }
    const float rstd = a.rstd[row], mean = kLayerNorm ? a.mean[row] : 0.0f;
    Wide g[kGroups];
    float sums[kSums] = {};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Wide vx = widen(x[j]), vd = widen(dy[j]), w = widen(load_column<T>(a.weight, column(j), a.cols));
#pragma unroll
      for (int k = 0; k < kWide; ++k) {
        const float d = vd.x[k] * rstd, off = vx.x[k] - mean;
        if constexpr (kLayerNorm) dweight[1][j].x[k] += vd.x[k];
        dweight[0][j].x[k] += d * off;
        g[j].x[k] = d * w.x[k];
        sums[0] += g[j].x[k] * off;
        if constexpr (kLayerNorm) sums[1] += g[j].x[k];
      }
    }
    team.sum(sums);
    const float slope = -sums[0] * inverse * rstd * rstd;
    // g' - mean(g') + (x - mean) slope = g' + x slope + level.
    const float level = kLayerNorm ? -sums[kSums - 1] * inverse - mean * slope : 0.0f;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const Wide vx = widen(x[j]);
      Wide v = widen(past[j]);
#pragma unroll
      for (int k = 0; k < kWide; ++k) v.x[k] += fmaf(vx.x[k], slope, g[j].x[k]) + level;
      if (column(j) < a.cols) store_wide(static_cast<T*>(a.dx) + at + column(j), v);
    }
  }
  // The block's partial row: its teams' sums in their order.
  extern __shared__ __align__(16) float rows[];  // [teams, H]
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int c = (j * team.threads() + team.thread()) * kWide;
      if (c < a.cols) store_wide(rows + team.index() * a.cols + c, dweight[s][j]);
    }
    __syncthreads();
    float* partial = a.partial + (int64_t{blockIdx.x} * kSums + s) * a.cols;
    for (int c = threadIdx.x; c < a.cols; c += blockDim.x) {
      float sum = rows[c];
      for (int t = 1; t < teams; ++t) sum += rows[t * a.cols + c];
      partial[c] = sum;
    }
  }
}

// Any row, one block each; the block's partial row lies in memory from the start.
template <bool kLayerNorm, class T>
__global__ void __launch_bounds__(kThreads) norm_bwd_any_kernel(const BwdArgs a) {
  constexpr int kSums = kLayerNorm ? 2 : 1;
  Team team(Team::kMaxWarps);
  const float inverse = 1.0f / static_cast<float>(a.cols);
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

// Calls f with std::integral_constant<int, groups>.
template <int kMost, class F>
void with_groups(int groups, F&& f) {
  if constexpr (kMost > 0)
    groups == kMost ? f(std::integral_constant<int, kMost>{}) : with_groups<kMost - 1>(groups, f);
}

template <bool kLayerNorm>
void norm_fwd(const char* op, Exec& exec, const Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x,
              ConstTensor r, ConstTensor weight, ConstTensor bias, float eps) {
  start_operand(op, exec, y);
  FwdArgs args{.rows = x.dim(0),
               .cols = static_cast<int>(x.dim(1)),
               .warps = Team::kMaxWarps,
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
      const Layout layout = layout_of(args.cols, kMost, whole);
      if (layout.groups == 0)
        return launch(device,
                      {.blocks = static_cast<unsigned>(std::min<int64_t>(args.rows, 4 * device.multiprocessors())),
                       .threads = kThreads},
                      norm_fwd_any_kernel<kLayerNorm, X, Y>, args);
      args.warps = layout.warps;
      // Many short-lived blocks: the hardware keeps the multiprocessors full.
      const int teams = std::max(1, kFwdWarps / layout.warps);
      const int64_t blocks = ceil_div(args.rows, int64_t{teams});
      const unsigned threads = static_cast<unsigned>(teams * layout.warps * kWarp);
      with_groups<kMost>(layout.groups, [&](auto groups) {
        launch(device, {.blocks = static_cast<unsigned>(blocks), .threads = threads},
               norm_fwd_kernel<kLayerNorm, decltype(groups)::value, X, Y>, args);
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
               .warps = Team::kMaxWarps,
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
    const Layout layout = layout_of(args.cols, kMost, whole);
    const int rows_at_once = layout.groups ? layout.teams() : 1;
    const int64_t blocks =
        std::min({ceil_div(args.rows, int64_t{rows_at_once}), int64_t{device.multiprocessors()}, kRowReductionBlocks});
    args.partial = partial_rows(op, exec, blocks, kSums * args.cols);
    Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kThreads};
    if (layout.groups == 0) {
      launch(device, grid, norm_bwd_any_kernel<kLayerNorm, T>, args);
    } else {
      args.warps = layout.warps;
      grid.threads = static_cast<unsigned>(layout.teams() * layout.warps * kWarp);
      grid.shared_bytes = static_cast<size_t>(layout.teams()) * static_cast<size_t>(args.cols) * sizeof(float);
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
