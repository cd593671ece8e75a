// Three launches over all parameters: squares of the gradients, their norm, the update. Compiled with -fmad=false, so
// that every operation rounds as the CPU kernel's.
#include "ops/cuda/adamw.h"

#include <algorithm>
#include <vector>

#include "numerics/moment8.h"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 4;  // a multiprocessor: 64 registers a thread
constexpr int kUpdateChunk = kThreads * kWide;
constexpr int kNormLoads = 4;  // in flight a thread
constexpr int kNormChunk = kThreads * kWide * kNormLoads;
constexpr int kLanesPerBlock = kMomentBlock / kWide;  // threads that share one unit of 8-bit moments
constexpr unsigned kAll = 0xffffffffu;

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

__global__ void __launch_bounds__(kThreads, 4) norm_kernel(double* partial, const AdamwRow* row, int chunks) {
  double sum = 0;
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    while (chunk >= row->norm.end) ++row;
    const int64_t first = int64_t{chunk - row->norm.begin} * kNormChunk;
    sum += row->grad_is_bf16 ? chunk_squares<Bf16>(*row, first) : chunk_squares<float>(*row, first);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) finish_norm_kernel(AdamwOutcome* outcome, const double* partial) {
  double sum = 0;
  for (int b = threadIdx.x; b < kNormBlocks; b += kThreads) sum += partial[b];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *outcome = {.grad_norm = sqrt(sum)};
}

// What the kernels need of a step beside the rows.
struct UpdateArgs {
  float grad_scale;
  double max_norm;
  AdamwFactors factors;
  float inverse_correction2;  // 1 / sqrt_correction2
  uint64_t seed;
  uint32_t step;
};

// Eight elements of one row; kVector: all there and aligned, else the first `count` of them.
template <bool kVector>
struct Place {
  const AdamwRow* row;
  int64_t first;

  __device__ __forceinline__ int count() const {
    return kVector ? kWide : static_cast<int>(max(int64_t{0}, min(int64_t{kWide}, row->n - first)));
  }
  template <class T>
  __device__ __forceinline__ Packed<T> fetch(const void* base) const {
    const T* p = static_cast<const T*>(base) + first;
    if constexpr (kVector)
      return load_packed(p);
    else
      return pack<T>(load_wide(p, count()));
  }
  template <class T>
  __device__ __forceinline__ void put(void* base, const Packed<T>& v) const {
    T* p = static_cast<T*>(base) + first;
    if constexpr (kVector)
      store_packed(p, v);
    else
      store_wide(p, widen(v), count());
  }
  __device__ __forceinline__ uint2 fetch_codes(const void* base) const {
    const uint8_t* p = static_cast<const uint8_t*>(base) + first;
    if constexpr (kVector) return *reinterpret_cast<const uint2*>(p);
    uint32_t words[2] = {};
#pragma unroll
    for (int k = 0; k < kWide; ++k)
      if (k < count()) words[k / 4] |= uint32_t{p[k]} << k % 4 * 8;
    return {words[0], words[1]};
  }
  __device__ __forceinline__ void put_codes(void* base, const uint2& codes) const {
    uint8_t* p = static_cast<uint8_t*>(base) + first;
    if constexpr (kVector) {
      *reinterpret_cast<uint2*>(p) = codes;
    } else {
#pragma unroll
      for (int k = 0; k < kWide; ++k)
        if (k < count()) p[k] = static_cast<uint8_t>((k < 4 ? codes.x : codes.y) >> k % 4 * 8);
    }
  }
};

// Both moments of eight elements as they lie in memory.
template <class S>
struct Moments {
  Packed<S> m, v;
  template <bool kVector>
  __device__ __forceinline__ void load(const Place<kVector>& at) {
    m = at.template fetch<S>(at.row->m);
    v = at.template fetch<S>(at.row->v);
  }
  __device__ __forceinline__ void decode(Wide& wide_m, Wide& wide_v) const {
    wide_m = widen(m);
    wide_v = widen(v);
  }
  template <bool kVector>
  __device__ __forceinline__ static void store(const Place<kVector>& at, const Wide& m, const Wide& v,
                                               const Wide& /*roots*/) {
    at.put(at.row->m, pack<S>(m));
    at.put(at.row->v, pack<S>(v));
  }
};

template <>
struct Moments<uint8_t> {
  uint2 m, v;
  float m_unit, v_unit;
  template <bool kVector>
  __device__ __forceinline__ void load(const Place<kVector>& at) {
    m = at.fetch_codes(at.row->m);
    v = at.fetch_codes(at.row->v);
    const bool any = at.count() > 0;
    m_unit = any ? at.row->m_scale[at.first / kMomentBlock] : 0.0f;
    v_unit = any ? at.row->v_scale[at.first / kMomentBlock] : 0.0f;
  }
  __device__ __forceinline__ void decode(Wide& wide_m, Wide& wide_v) const {
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      wide_m.x[k] = moment8::decode_m((k < 4 ? m.x : m.y) >> k % 4 * 8 & 255u, m_unit);
      wide_v.x[k] = moment8::decode_v((k < 4 ? v.x : v.y) >> k % 4 * 8 & 255u, v_unit);
    }
  }
  // All threads of a warp take part. Elements past the end are zeros: decoded so, and with a gradient of zero.
  template <bool kVector>
  __device__ __forceinline__ static void store(const Place<kVector>& at, const Wide& m, const Wide& /*v*/,
                                               const Wide& roots) {
    float m_most = 0, v_most = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      m_most = fmaxf(m_most, fabsf(m.x[k]));
      v_most = fmaxf(v_most, roots.x[k]);
    }
#pragma unroll
    for (int step = kLanesPerBlock / 2; step > 0; step /= 2) {
      m_most = fmaxf(m_most, __shfl_xor_sync(kAll, m_most, step));
      v_most = fmaxf(v_most, __shfl_xor_sync(kAll, v_most, step));
    }
    const float m_unit = moment8::unit_of<127>(m_most), v_unit = moment8::unit_of<255>(v_most);
    const float m_inverse = moment8::inverse_of(m_unit), v_inverse = moment8::inverse_of(v_unit);
    uint32_t m_words[2] = {}, v_words[2] = {};
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      m_words[k / 4] |= moment8::encode_m(m.x[k], m_inverse) << k % 4 * 8;
      v_words[k / 4] |= moment8::encode_root(roots.x[k], v_inverse) << k % 4 * 8;
    }
    at.put_codes(at.row->m, {m_words[0], m_words[1]});
    at.put_codes(at.row->v, {v_words[0], v_words[1]});
    if (threadIdx.x % kLanesPerBlock == 0 && at.count() > 0) {
      at.row->m_scale[at.first / kMomentBlock] = m_unit;
      at.row->v_scale[at.first / kMomentBlock] = v_unit;
    }
  }
};

template <class P, class G, class S>
struct Fetched {
  Packed<P> param;
  Packed<G> grad;
  Moments<S> moments;
  template <bool kVector>
  __device__ __forceinline__ void load(const Place<kVector>& at) {
    param = at.template fetch<P>(at.row->param);
    grad = at.template fetch<G>(at.row->grad);
    moments.load(at);
  }
};

// x / c for c > 0 of ordinary size and 1 / c rounded: the correction makes it the quotient rounded to nearest
// (Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990).
__device__ __forceinline__ float divide(float x, float c, float inverse) {
  const float q = x * inverse;
  const float corrected = fmaf(fmaf(-q, c, x), inverse, q);
  return q == __int_as_float(0x7f800000) ? q : corrected;
}

// A BF16 param: rounds, counts what had an update and did not move.
template <bool kStochastic, bool kVector>
__device__ __forceinline__ Packed<Bf16> round_param(const UpdateArgs& a, const Place<kVector>& at, const Wide& after,
                                                    uint32_t wanted, const Packed<Bf16>& before, unsigned& still) {
  Packed<Bf16> rounded = pack<Bf16>(after);
  if constexpr (kStochastic) {
    const RandomKey key{a.seed, a.step, at.row->id, DrawForm::kUpdate};
    const Random4 bits = draw(key, static_cast<uint64_t>(at.first) / kWide);
    uint32_t words[4];
    float finite = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) finite += after.x[k] * 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = __float_as_uint(after.x[2 * j]) + (bits.x[j] & 0xffffu);
      const uint32_t high = __float_as_uint(after.x[2 * j + 1]) + (bits.x[j] >> 16);
      words[j] = __byte_perm(low, high, 0x7632);
    }
    if (finite == 0) {
      rounded.raw = make_uint4(words[0], words[1], words[2], words[3]);
    } else {  // NaN and Inf keep what rounding to nearest gives
      const uint32_t nearest[4] = {rounded.raw.x, rounded.raw.y, rounded.raw.z, rounded.raw.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!isfinite(after.x[2 * j])) words[j] = (words[j] & 0xffff0000u) | (nearest[j] & 0xffffu);
        if (!isfinite(after.x[2 * j + 1])) words[j] = (words[j] & 0xffffu) | (nearest[j] & 0xffff0000u);
      }
      rounded.raw = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
  const uint32_t moved[4] = {rounded.raw.x ^ before.raw.x, rounded.raw.y ^ before.raw.y, rounded.raw.z ^ before.raw.z,
                             rounded.raw.w ^ before.raw.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (!(moved[j] & 0xffffu)) still += wanted >> 2 * j & 1u;
    if (!(moved[j] >> 16)) still += wanted >> (2 * j + 1) & 1u;
  }
  return rounded;
}

template <bool kStochastic, bool kVector, class P, class G, class S>
__device__ __forceinline__ void update(const UpdateArgs& a, float grad_scale, const Place<kVector>& at,
                                       const Fetched<P, G, S>& x, unsigned& still) {
  const AdamwFactors& f = a.factors;
  const float decay = at.row->decays ? f.decay : 0.0f;
  const Wide param = widen(x.param), grad = widen(x.grad);
  Wide m, v, roots, after;
  x.moments.decode(m, v);
  uint32_t wanted = 0;
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const float g = grad_scale * grad.x[k];
    const float decayed = decay * param.x[k];
    m.x[k] = f.beta1 * m.x[k] + f.one_minus_beta1 * g;
    v.x[k] = f.beta2 * v.x[k] + f.one_minus_beta2 * (g * g);
    roots.x[k] = sqrtf(v.x[k]);
    const float moved =
        f.step_size * (m.x[k] / (divide(roots.x[k], f.sqrt_correction2, a.inverse_correction2) + f.eps));
    after.x[k] = param.x[k] - decayed - moved;
    if (fabsf(decayed) + fabsf(moved) != 0.0f) wanted |= 1u << k;
  }
  Moments<S>::store(at, m, v, roots);
  if constexpr (sizeof(P) == 2) {
    if constexpr (!kVector) wanted &= (1u << at.count()) - 1u;
    const Packed<Bf16> rounded = round_param<kStochastic>(a, at, after, wanted, x.param, still);
    at.put(at.row->param, rounded);
    if (at.row->copy) at.put(at.row->copy, rounded);
  } else {
    at.put(at.row->param, pack<float>(after));
    if (at.row->copy) at.put(at.row->copy, pack<Bf16>(after));
  }
}

template <bool kStochastic, class P, class G, class S>
__global__ void __launch_bounds__(kThreads, kBlocks)
    update_kernel(AdamwOutcome* outcome, const AdamwRow* rows, int whole, int rest, UpdateArgs a) {
  const double norm = outcome->grad_norm;
  if (!isfinite(norm)) return;
  float grad_scale = a.grad_scale;
  if (a.max_norm > 0) grad_scale *= static_cast<float>(fmin(1.0, a.max_norm / (norm + 1e-6)));
  unsigned still = 0;

  const AdamwRow* row = rows;
  const int stride = static_cast<int>(gridDim.x);
  int chunk = static_cast<int>(blockIdx.x);
  for (; chunk < whole; chunk += stride) {
    while (chunk >= row->whole.end) ++row;
    const Place<true> at{row, int64_t{chunk - row->whole.begin} * kUpdateChunk + threadIdx.x * kWide};
    Fetched<P, G, S> x;
    x.load(at);
    update<kStochastic>(a, grad_scale, at, x, still);
  }
  row = rows;
  for (chunk = static_cast<int>(blockIdx.x); chunk < rest; chunk += stride) {
    while (chunk >= row->rest.end) ++row;
    const int64_t behind = int64_t{row->whole.end - row->whole.begin} + (chunk - row->rest.begin);
    const Place<false> at{row, behind * kUpdateChunk + threadIdx.x * kWide};
    Fetched<P, G, S> x;
    x.load(at);
    update<kStochastic>(a, grad_scale, at, x, still);
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
        kernel = update_kernel<false, float, G, S>;
      else
        kernel = stochastic ? update_kernel<true, Bf16, G, S> : update_kernel<false, Bf16, G, S>;
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
  launch(device, {.blocks = kNormBlocks, .threads = kThreads}, norm_kernel, partial, table, norm_chunks);
  launch(device, {.blocks = 1, .threads = kThreads}, finish_norm_kernel, outcome, partial);
  const AdamwFactors factors(step);
  const UpdateArgs args{.grad_scale = step.grad_scale,
                        .max_norm = max_norm,
                        .factors = factors,
                        .inverse_correction2 = 1.0f / factors.sqrt_correction2,
                        .seed = exec.seed,
                        .step = exec.step};
  for (const Launch& l : launches) {
    const int blocks = std::min(std::max(l.whole, l.rest), device.multiprocessors() * kBlocks);
    if (blocks > 0)
      launch(device, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, l.kernel, outcome,
             table + l.first_row, l.whole, l.rest, args);
  }
}

}  // namespace mantissa::cuda
