// Three launches over all parameters: squares of the gradients, their norm, the update. Compiled with -fmad=false, so
// that every operation rounds as the CPU kernel's.
#include <algorithm>
#include <vector>

#include "ops/adamw.h"
#include "ops/cuda/adamw/moments.cuh"
#include "ops/cuda/adamw/round_param.cuh"
#include "ops/cuda/common/rounded.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

using namespace adamw;

constexpr int kThreads = 256;
constexpr int kBlocks = 3;  // a multiprocessor: 80 registers a thread
constexpr int kUpdateChunk = kThreads * kWide;
constexpr int kNormLoads = 4;  // in flight a thread
constexpr int kNormChunk = kThreads * kWide * kNormLoads;

// The sum over a block's threads, in one order; valid in thread 0.
__device__ double block_sum(double v) {
  __shared__ double slots[kThreads / 32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kAll, v, step);
  if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += slots[w];
  return sum;
}

template <class G>
__device__ __forceinline__ double chunk_squares(const AdamwRow& row, int64_t first) {
  const G* grad = static_cast<const G*>(row.grad);
  Wide x[kNormLoads];
  if (row.aligned && first + kNormChunk <= row.n) {
    Packed<G> raw[kNormLoads];
#pragma unroll
    for (int j = 0; j < kNormLoads; ++j) raw[j] = load_packed(grad + first + (j * kThreads + threadIdx.x) * kWide);
#pragma unroll
    for (int j = 0; j < kNormLoads; ++j) x[j] = widen(raw[j]);
  } else {
#pragma unroll
    for (int j = 0; j < kNormLoads; ++j) {
      const int64_t i = first + (j * kThreads + threadIdx.x) * kWide;
      x[j] = load_wide(grad + i, static_cast<int>(max(int64_t{0}, min(int64_t{kWide}, row.n - i))));
    }
  }
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kNormLoads; ++j) {
    float part = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) part = fmaf(x[j].x[k], x[j].x[k], part);
    sum += part;
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads, 4) adamw_norm_kernel(double* partial, const AdamwRow* row, int chunks) {
  double sum = 0;
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    while (chunk >= row->norm.end) ++row;
    const int64_t first = int64_t{chunk - row->norm.begin} * kNormChunk;
    sum += row->grad_is_bf16 ? chunk_squares<Bf16>(*row, first) : chunk_squares<float>(*row, first);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) adamw_finish_norm_kernel(AdamwOutcome* outcome, const double* partial) {
  double sum = 0;
  for (int b = threadIdx.x; b < kNormBlocks; b += kThreads) sum += partial[b];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *outcome = {.grad_norm = sqrt(sum)};
}

// Eight elements and what stands in memory of them.
template <bool kVector, class P, class G, class S>
struct Fetched {
  AdamwRow row;
  int64_t first;
  Packed<P> param;
  Packed<G> grad;
  Moments<S> moments;

  __device__ __forceinline__ Place<kVector> place() const { return {&row, first}; }
  __device__ __forceinline__ void load() {
    param = place().template fetch<P>(row.param);
    grad = place().template fetch<G>(row.grad);
    moments.load(place());
  }
};

// x.m and x.v hold the moments before. Not kExact: where some operand is not ordinary, `ordinary` says so and the
// results are void.
template <bool kExact>
__device__ __forceinline__ void advance(Step& x, const UpdateArgs& a, float grad_scale, float decay, const Wide& param,
                                        const Wide& grad) {
  const AdamwFactors& f = a.factors;
  float m_least = kMostMoment, m_most = 0, not_finite = 0;
  int v_least = __float_as_int(kMostSquare), v_most = 0;  // patterns of floats from zero on order as they do
  x.root_most = 0;
  x.wanted = 0;
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const float g = grad_scale * grad.x[k];
    const float decayed = decay * param.x[k];
    const float m = f.beta1 * x.m.x[k] + f.one_minus_beta1 * g;
    const float v = f.beta2 * x.v.x[k] + f.one_minus_beta2 * (g * g);
    const float root = kExact ? sqrtf(v) : root_of(v);
    if constexpr (kExact) {
      const float moved = f.step_size * (m / (root / f.sqrt_correction2 + f.eps));
      x.after.x[k] = param.x[k] - decayed - moved;
      if (fabsf(decayed) + fabsf(moved) != 0.0f) x.wanted |= 1u << k;
      m_most = fmaxf(m_most, fabsf(m));
      x.root_most = fmaxf(x.root_most, root);
    } else {
      const float below = quotient_of(root, f.sqrt_correction2, a.inverse_correction2) + f.eps;
      x.after.x[k] = param.x[k] - decayed - f.step_size * quotient_of(m, below, reciprocal_of(below));
      m_least = fminf(m_least, fabsf(m));
      m_most = larger_or_nan(m_most, fabsf(m));
      not_finite = __fmaf_rn(x.after.x[k], 0.0f, not_finite);  // NaN from then on
    }
    x.m.x[k] = m;
    x.v.x[k] = v;
    x.roots.x[k] = root;
  }
  if constexpr (!kExact) {
#pragma unroll
    for (int k = 0; k < kWide; k += 2) {
      v_least = __vimin3_s32(v_least, __float_as_int(x.v.x[k]), __float_as_int(x.v.x[k + 1]));
      v_most = __vimax3_s32(v_most, __float_as_int(x.v.x[k]), __float_as_int(x.v.x[k + 1]));
    }
    x.root_most = root_of(__int_as_float(v_most));  // roots are rounded, so they order as their squares
  }
  x.m_most = m_most;
  x.ordinary = !kExact && m_least >= kLeastOrdinary && m_most <= kMostMoment &&
               v_least >= __float_as_int(kLeastOrdinary) && v_most <= __float_as_int(kMostSquare) && not_finite == 0;
}

template <bool kStochastic, bool kVector, class P, class G, class S>
__device__ __forceinline__ void update(const UpdateArgs& a, float grad_scale, const Fetched<kVector, P, G, S>& x,
                                       unsigned& still) {
  const AdamwRow& row = x.row;
  const Place<kVector> at = x.place();
  const float decay = row.decays ? a.factors.decay : 0.0f;
  const Wide param = widen(x.param), grad = widen(x.grad);
  Step step;
  step.ordinary = false;
  if (kVector && a.ordinary) {
    x.moments.decode(step.m, step.v);
    advance<false>(step, a, grad_scale, decay, param, grad);
  }
  if (!step.ordinary) {
    x.moments.decode(step.m, step.v);
    advance<true>(step, a, grad_scale, decay, param, grad);
    if constexpr (!kVector) step.wanted &= (1u << at.count()) - 1u;
  }
  if constexpr (sizeof(P) == 2) {
    const Packed<Bf16> rounded = round_param<kStochastic>(a, at, step, x.param, still);
    at.put(row.param, rounded);
    if (row.copy) at.put(row.copy, rounded);
  } else {
    at.put(row.param, pack<float>(step.after));
    if (row.copy) at.put(row.copy, pack<Bf16>(step.after));
  }
  Moments<S>::store(at, step);
}

template <bool kStochastic, class P, class G, class S>
__global__ void __launch_bounds__(kThreads, kBlocks)
    adamw_update_kernel(AdamwOutcome* outcome, const AdamwRow* rows, int whole, int rest, UpdateArgs a) {
  const double norm = outcome->grad_norm;
  if (!isfinite(norm)) return;
  float grad_scale = a.grad_scale;
  if (a.max_norm > 0) grad_scale *= static_cast<float>(fmin(1.0, a.max_norm / (norm + 1e-6)));
  unsigned still = 0;

  const int stride = static_cast<int>(gridDim.x), place = static_cast<int>(threadIdx.x) * kWide;
  const AdamwRow* from = rows;
  Fetched<true, P, G, S> next;
  next.row = *rows;
  const auto fetch = [&](int chunk) {
    if (chunk >= next.row.whole.end) {
      while (chunk >= from->whole.end) ++from;
      next.row = *from;
    }
    next.first = int64_t{chunk - next.row.whole.begin} * kUpdateChunk + place;
    next.load();
  };
  int chunk = static_cast<int>(blockIdx.x);
  if constexpr (sizeof(S) < 4) {
    if (chunk < whole) fetch(chunk);
    for (; chunk < whole; chunk += stride) {
      const Fetched<true, P, G, S> mine = next;
      if (chunk + stride < whole) fetch(chunk + stride);  // in flight during the update
      update<kStochastic>(a, grad_scale, mine, still);
    }
  } else {  // FP32 moments leave no registers for a second set, and wait for memory alone
    for (; chunk < whole; chunk += stride) {
      fetch(chunk);
      update<kStochastic>(a, grad_scale, next, still);
    }
  }
  from = rows;
  for (chunk = static_cast<int>(blockIdx.x); chunk < rest; chunk += stride) {
    while (chunk >= from->rest.end) ++from;
    const int64_t behind = int64_t{from->whole.end - from->whole.begin} + (chunk - from->rest.begin);
    Fetched<false, P, G, S> last;
    last.row = *from;
    last.first = behind * kUpdateChunk + place;
    last.load();
    update<kStochastic>(a, grad_scale, last, still);
  }
  if constexpr (sizeof(P) == 2) {
    const unsigned of_warp = __reduce_add_sync(kAll, still);
    if (threadIdx.x % 32 == 0 && of_warp > 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(&outcome->unmoved), static_cast<unsigned long long>(of_warp));
  }
}

using UpdateKernel = void (*)(AdamwOutcome*, const AdamwRow*, int, int, UpdateArgs);

// The kernel of a parameter's element types; parameters with one kernel share a launch.
UpdateKernel kernel_of(const AdamwParam& p, bool stochastic) {
  UpdateKernel kernel = nullptr;
  visit_float(p.grad, [&]<class G>(const G*) {
    const auto with_state = [&]<class S>(const S*) {
      if (p.param.dtype == DType::kF32)
        kernel = adamw_update_kernel<false, float, G, S>;
      else
        kernel = stochastic ? adamw_update_kernel<true, Bf16, G, S> : adamw_update_kernel<false, Bf16, G, S>;
    };
    if (p.m.dtype == DType::kU8)
      with_state(static_cast<const uint8_t*>(nullptr));
    else
      visit_float(ConstTensor(p.m), with_state);
  });
  return kernel;
}

AdamwRow row_of(const AdamwParam& p) {
  const void* addresses[] = {p.param.data, p.copy.data, p.grad.data, p.m.data, p.v.data};
  return {.param = p.param.data,
          .copy = p.copy.data,
          .grad = p.grad.data,
          .m = p.m.data,
          .v = p.v.data,
          .m_scale = static_cast<float*>(p.m_scale.data),
          .v_scale = static_cast<float*>(p.v_scale.data),
          .n = p.param.count(),
          .id = p.id,
          .decays = p.decays,
          .grad_is_bf16 = p.grad.dtype == DType::kBF16,
          .aligned =
              std::ranges::all_of(addresses, [](const void* a) { return reinterpret_cast<uintptr_t>(a) % 16 == 0; })};
}

// With them and ordinary moments, quotients stay ordinary and a step is never zero.
bool are_ordinary(const AdamwFactors& f) {
  return f.sqrt_correction2 >= 0x1p-9f && f.sqrt_correction2 <= 1 && f.eps >= 0 && f.eps <= 1 &&
         f.step_size >= 0x1p-30f && f.step_size <= 0x1p20f;
}

struct Launch {
  UpdateKernel kernel;
  int first_row, whole, rest;
};

}  // namespace

void adamw_update(Exec& exec, AdamwOutcome* outcome, std::span<const AdamwParam> params, const AdamwStep& step,
                  double max_norm, bool stochastic) {
  const OpScope scope(exec, "adamw_update");
  CudaDevice& device = device_of(exec);
  check(!device.capturing(), "adamw_update: {} rows are copied in, which a graph cannot hold", params.size());
  check(adamw_scratch_bytes(params) <= exec.shared_scratch_bytes(),
        "adamw_update: needs {} bytes of shared scratch, has {}", adamw_scratch_bytes(params),
        exec.shared_scratch_bytes());

  // Rows in the order of their kernels' first appearance.
  std::vector<AdamwRow> rows;
  std::vector<Launch> launches;
  int norm_chunks = 0;
  for (const AdamwParam& first : params) {
    const UpdateKernel kernel = kernel_of(first, stochastic);
    if (std::ranges::any_of(launches, [&](const Launch& l) { return l.kernel == kernel; })) continue;
    Launch launch{.kernel = kernel, .first_row = static_cast<int>(rows.size()), .whole = 0, .rest = 0};
    for (const AdamwParam& p : params) {
      if (kernel_of(p, stochastic) != kernel || p.param.count() == 0) continue;
      AdamwRow row = row_of(p);
      const auto take = [](int& count, int64_t chunks) {
        const int begin = count;
        return AdamwChunks{begin, count += static_cast<int>(chunks)};
      };
      const int64_t whole = row.aligned ? row.n / kUpdateChunk : 0;
      row.norm = take(norm_chunks, ceil_div(row.n, int64_t{kNormChunk}));
      row.whole = take(launch.whole, whole);
      row.rest = take(launch.rest, ceil_div(row.n - whole * kUpdateChunk, int64_t{kUpdateChunk}));
      rows.push_back(row);
    }
    launches.push_back(launch);
  }

  auto* partial = reinterpret_cast<double*>(exec.shared_scratch());
  auto* table = reinterpret_cast<AdamwRow*>(exec.shared_scratch() + kAdamwPartialBytes);
  if (!rows.empty()) device.copy_in(table, rows.data(), static_cast<int64_t>(rows.size() * sizeof(AdamwRow)));
  launch(device, {.blocks = kNormBlocks, .threads = kThreads}, adamw_norm_kernel, partial, table, norm_chunks);
  launch(device, {.blocks = 1, .threads = kThreads}, adamw_finish_norm_kernel, outcome, partial);
  const AdamwFactors factors(step);
  const UpdateArgs args{.grad_scale = step.grad_scale,
                        .max_norm = max_norm,
                        .factors = factors,
                        .inverse_correction2 = 1.0f / factors.sqrt_correction2,
                        .ordinary = are_ordinary(factors),
                        .keys = PhiloxKeys(exec.state.seed),
                        .step = exec.state.step};
  for (const Launch& l : launches) {
    const int blocks = std::min(std::max(l.whole, l.rest), device.multiprocessors() * kBlocks);
    if (blocks > 0)
      launch(device, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, l.kernel, outcome,
             table + l.first_row, l.whole, l.rest, args);
  }
}

}  // namespace mantissa::cuda
