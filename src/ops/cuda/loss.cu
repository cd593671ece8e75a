// A cluster of 1 to 8 blocks holds a row of logits in shared memory: it is read once, and its gradient written once.
// Each thread owns its groups of 16 bytes from the load to the store, and has the next row's in flight while it writes.
#include "ops/cuda/loss.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;  // at most
constexpr int kBlocks = 3;     // a multiprocessor's, with so many threads
constexpr int kBatch = 2;      // groups that a thread works on at a time
constexpr int kWarps = kThreads / 32;
constexpr int64_t kSliceBytes = 76000;      // of a row in one block: three blocks share a multiprocessor
constexpr int64_t kMostBytes = 200 * 1024;  // with a cluster of 8 already; beyond, groups are read again
constexpr int32_t kIgnored = -100;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kInfinity = __builtin_huge_valf();

struct Args {
  void* logits;
  int64_t rows, pitch;  // pitch: columns with the padding, P
  int vocab;
  int slice, resident;  // groups of a row in one block; those held in shared memory
  const int32_t* labels;
  const float* grad_scale;  // null: losses alone
  float z_weight;
  double *loss, *lse;  // [R]
};

// The sum of 2^(x log2(e) - c) over logits x, c = max x log2(e).
struct Partial {
  float c, sum;
};
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The factor that brings a sum about `from` to one about `to`. -Inf to -Inf is 1: a thread without columns adds
// nothing, and NaN stays NaN.
__device__ __forceinline__ float rescale(float from, float to) { return from == to ? 1.0f : exp2_fast(from - to); }
__device__ __forceinline__ Partial combine_warp(Partial mine) {
  float c = mine.c;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) c = fmaxf(c, __shfl_xor_sync(0xffffffffu, c, step));
  float sum = mine.sum * rescale(mine.c, c);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return {c, sum};
}
template <int kCount>
__device__ __forceinline__ Partial combine_all(const Partial (&parts)[kCount]) {
  Partial all{-kInfinity, 0};
#pragma unroll
  for (int i = 0; i < kCount; ++i) all.c = fmaxf(all.c, parts[i].c);
#pragma unroll
  for (int i = 0; i < kCount; ++i) all.sum += parts[i].sum * rescale(parts[i].c, all.c);
  return all;
}

// A group: 16 bytes of a row. kAligned: rows consist of whole, aligned groups.
template <class T, bool kAligned>
struct Group {
  static constexpr int kCount = 16 / sizeof(T);

  __device__ __forceinline__ static uint4 read(const T* row, int64_t pitch, int group) {
    if constexpr (kAligned) return reinterpret_cast<const uint4*>(row)[group];
    union {
      T x[kCount];
      uint4 raw;
    } v = {};
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (int64_t{group} * kCount + k < pitch) v.x[k] = row[int64_t{group} * kCount + k];
    return v.raw;
  }
  __device__ __forceinline__ static void write(T* row, int64_t pitch, int group, const float (&x)[kCount]) {
    if constexpr (kAligned) {
      uint4 raw;
      if constexpr (sizeof(T) == 4) {
        raw = make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
      } else {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * j], x[2 * j + 1]);
          words[j] = reinterpret_cast<const uint32_t&>(pair);
        }
        raw = make_uint4(words[0], words[1], words[2], words[3]);
      }
      reinterpret_cast<uint4*>(row)[group] = raw;
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        if (int64_t{group} * kCount + k < pitch) row[int64_t{group} * kCount + k] = from_f32<T>(x[k]);
    }
  }
  __device__ __forceinline__ static void widen(float (&x)[kCount], const uint4& raw) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 4) {
        x[j] = __uint_as_float(words[j]);
      } else {
        x[2 * j] = __uint_as_float(words[j] << 16);
        x[2 * j + 1] = __uint_as_float(words[j] & 0xffff0000u);
      }
    }
  }
  // Columns from `vocab` on as `with`.
  __device__ __forceinline__ static void mask(float (&x)[kCount], int group, int vocab, float with) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = group * kCount + k >= vocab ? with : x[k];
  }
  // The largest element, and `most`.
  __device__ __forceinline__ static float max_of(float most, const uint4& raw) {
    if constexpr (sizeof(T) == 4) {
      const float low = fmaxf(__uint_as_float(raw.x), __uint_as_float(raw.y));
      return fmaxf(most, fmaxf(low, fmaxf(__uint_as_float(raw.z), __uint_as_float(raw.w))));
    } else {
      const auto& pair = reinterpret_cast<const __nv_bfloat162(&)[4]>(raw);
      const float2 two = __bfloat1622float2(__hmax2(__hmax2(pair[0], pair[1]), __hmax2(pair[2], pair[3])));
      return fmaxf(most, fmaxf(two.x, two.y));
    }
  }
};

__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// Where the partial sums of a row's blocks meet. The store carries its own arrival: a cluster's barrier would wait, at
// every row, for all that was written to global memory.
template <int kCluster>
struct Exchange {
  Partial parts[2][kCluster];  // one half a row: who sends row r + 2 has been sent row r + 1, by readers of row r
  uint64_t barrier[2];

  __device__ __forceinline__ static uint32_t address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
  }
  // By one thread.
  __device__ __forceinline__ void init() {
    for (uint64_t& b : barrier) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&b)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // By threads 0 to kCluster - 1, each to the block of its number.
  __device__ __forceinline__ void send(const Partial& mine, int half, int rank, int thread) {
    if (thread == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&barrier[half])),
                   "n"(kCluster * sizeof(Partial))
                   : "memory");
    uint32_t to, there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address(&parts[half][rank])), "r"(thread));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(&barrier[half])), "r"(thread));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(mine.c), "f"(mine.sum), "r"(there)
                 : "memory");
  }
  __device__ __forceinline__ void wait(int half, uint32_t phase) const {
    uint32_t done = 0;
    while (!done)
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(address(&barrier[half])), "r"(phase)
          : "memory");
  }
};

// Adds groups to a thread's partial sum, all about one maximum.
template <class G, int kGroups>
__device__ __forceinline__ void add_groups(Partial& partial, float most, const float (&x)[kGroups][G::kCount]) {
  const float c = fmaxf(partial.c, most * kLog2e);
  const float shift = c > -kInfinity ? c : 0.0f;  // NaN in x, or Inf - Inf, reaches the sum
  float sum[2] = {partial.sum * rescale(partial.c, c), 0};
#pragma unroll
  for (int j = 0; j < kGroups; ++j)
#pragma unroll
    for (int k = 0; k < G::kCount; ++k) sum[k % 2] += exp2_fast(fmaf(x[j][k], kLog2e, -shift));
  partial = {c, sum[0] + sum[1]};
}

template <class T, int kCluster, bool kAligned>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, kBlocks) cross_entropy_kernel(Args a) {
  using G = Group<T, kAligned>;
  extern __shared__ uint4 held[];
  __shared__ Partial of_warp[kWarps];
  __shared__ Exchange<kCluster> exchange;
  const int rank = static_cast<int>(blockIdx.x % kCluster);
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int groups = static_cast<int>(ceil_div(a.pitch, int64_t{G::kCount}));
  const int begin = rank * a.slice, mine = min(a.slice, groups - begin);
  const int resident = kAligned ? min(mine, a.resident) : 0;
  const int whole = min(resident, a.vocab / G::kCount - begin);  // resident groups that need no mask; may be negative
  const int64_t stride = gridDim.x / kCluster;
  const float grad_scale = a.grad_scale ? *a.grad_scale : 0.0f;

  const auto row_at = [&](int64_t r) { return static_cast<T*>(a.logits) + r * a.pitch; };
  const auto fetch = [&](const T* row, int i) {
    if constexpr (kAligned) copy_async(held + i, reinterpret_cast<const uint4*>(row) + begin + i);
  };
  const auto fetch_all = [&](const T* row) {
    for (int i = thread; i < resident; i += threads) fetch(row, i);
  };
  const auto group_at = [&](const T* row, int i) {
    if (i < resident) return held[i];
    return G::read(row, a.pitch, begin + i);
  };

  int64_t r = blockIdx.x / kCluster;
  if (r >= a.rows) return;
  int32_t label = a.labels[r];
  if (label != kIgnored) fetch_all(row_at(r));
  if constexpr (kCluster > 1) {
    if (thread == 0) exchange.init();
    cg::this_cluster().sync();  // all blocks run before one writes into another
  }
  for (uint32_t turn = 0; r < a.rows; r += stride) {
    T* row = row_at(r);
    const bool more = r + stride < a.rows;
    const T* next_row = more ? row_at(r + stride) : nullptr;
    const int32_t next_label = more ? a.labels[r + stride] : kIgnored;
    const bool prefetch = next_label != kIgnored;
    if (label == kIgnored) {
      const float zeros[G::kCount] = {};
      if (a.grad_scale)
        for (int i = thread; i < mine; i += threads) G::write(row, a.pitch, begin + i, zeros);
      if (rank == 0 && thread == 0) a.loss[r] = a.lse[r] = 0;
      if (prefetch) fetch_all(next_row);
      label = next_label;
      continue;
    }
    const int half = static_cast<int>(turn % 2);
    asm volatile("cp.async.wait_all;" ::: "memory");
    const int label_group = label / G::kCount - begin;
    const bool has_label = label_group >= 0 && label_group < mine && label_group % threads == thread;
    float target = 0;
    if (has_label)
      target = label_group < resident ? to_f32(reinterpret_cast<const T*>(held)[label - begin * G::kCount])
                                      : to_f32(row[label]);

    Partial partial{-kInfinity, 0};
    int i = thread;
    for (; i + (kBatch - 1) * threads < whole; i += kBatch * threads) {
      float x[kBatch][G::kCount], most = -kInfinity;
      uint4 raw[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) raw[j] = held[i + j * threads];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        most = G::max_of(most, raw[j]);
        G::widen(x[j], raw[j]);
      }
      add_groups<G>(partial, most, x);
    }
    for (; i < mine; i += threads) {
      float x[1][G::kCount], most = -kInfinity;
      G::widen(x[0], group_at(row, i));
      G::mask(x[0], begin + i, a.vocab, -kInfinity);
#pragma unroll
      for (int k = 0; k < G::kCount; ++k) most = fmaxf(most, x[0][k]);
      add_groups<G>(partial, most, x);
    }
    partial = combine_warp(partial);
    if (thread % 32 == 0) of_warp[thread / 32] = partial;
    __syncthreads();
    if (thread < 32) {
      const Partial of_lane = thread < threads / 32 ? of_warp[thread] : Partial{-kInfinity, 0};
      const Partial all = combine_warp(of_lane);
      if constexpr (kCluster > 1) {
        if (thread < kCluster) exchange.send(all, half, rank, thread);
      } else if (thread == 0) {
        exchange.parts[half][0] = all;
      }
    }
    if constexpr (kCluster > 1)
      exchange.wait(half, turn / 2 % 2);
    else
      __syncthreads();
    const Partial all = combine_all(exchange.parts[half]);
    ++turn;

    if (has_label) {
      // c stands for c / log2(e) as FP32 multiplied it, so the losses and the gradient share one softmax.
      const double log_sum = log(static_cast<double>(all.sum)), top = all.c / static_cast<double>(kLog2e);
      a.loss[r] = log_sum + (top - target);
      a.lse[r] = top + log_sum;
    }
    if (a.grad_scale) {
      // d(loss + z lse²)/dx_j = p_j (1 + 2 z lse) - [j = label].
      float weight = grad_scale;
      if (a.z_weight != 0) weight *= 1 + 2 * a.z_weight * (all.c / kLog2e + logf(all.sum));
      const float scale = weight / all.sum;
      const auto gradient = [&](float(&x)[G::kCount], const uint4& raw) {
        G::widen(x, raw);
#pragma unroll
        for (int k = 0; k < G::kCount; ++k) x[k] = exp2_fast(fmaf(x[k], kLog2e, -all.c)) * scale;
      };
      i = thread;
      for (; i + (kBatch - 1) * threads < whole; i += kBatch * threads) {
        uint4 raw[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) raw[j] = held[i + j * threads];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          float x[G::kCount];
          gradient(x, raw[j]);
          G::write(row, a.pitch, begin + i + j * threads, x);
        }
        if (prefetch) {
#pragma unroll
          for (int j = 0; j < kBatch; ++j) fetch(next_row, i + j * threads);
        }
      }
      for (; i < mine; i += threads) {
        float x[G::kCount];
        gradient(x, group_at(row, i));
        G::mask(x, begin + i, a.vocab, 0);
        G::write(row, a.pitch, begin + i, x);
        if (prefetch && i < resident) fetch(next_row, i);
      }
      if (has_label) {
        asm volatile("" ::: "memory");  // over the thread's own group
        row[label] = from_f32<T>(exp2_fast(fmaf(target, kLog2e, -all.c)) * scale - grad_scale);
      }
    } else if (prefetch) {
      fetch_all(next_row);
    }
    label = next_label;
  }
  if constexpr (kCluster > 1) cg::this_cluster().sync();  // no block ends before it has been sent all
}

constexpr int kSumThreads = 1024;

// *sums += the rows' values; thread t adds rows t, t + 1024, ..., then the threads' sums are halved in order.
__global__ void __launch_bounds__(kSumThreads)
    add_losses_kernel(LossSums* sums, const double* loss, const double* lse, const int32_t* labels, int64_t rows) {
  __shared__ double losses[kSumThreads], squares[kSumThreads];
  __shared__ int32_t valid[kSumThreads];
  const int t = static_cast<int>(threadIdx.x);
  double loss_sum = 0, z_sum = 0;
  int32_t count = 0;
  for (int64_t r = t; r < rows; r += kSumThreads) {
    loss_sum += loss[r];
    z_sum += lse[r] * lse[r];
    count += labels[r] != kIgnored;
  }
  losses[t] = loss_sum;
  squares[t] = z_sum;
  valid[t] = count;
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) {
      losses[t] += losses[t + half];
      squares[t] += squares[t + half];
      valid[t] += valid[t + half];
    }
  }
  if (t == 0) {
    sums->loss += losses[0];
    sums->z += squares[0];
    sums->valid += valid[0];
  }
}

// As many clusters as run at a time: a second wave of a few would cost as much as the first.
template <class T, int kCluster, bool kAligned>
void launch_rows(CudaDevice& device, const Args& args, int threads, size_t shared) {
  auto* kernel = cross_entropy_kernel<T, kCluster, kAligned>;
  MANTISSA_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)));
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(kCluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int resident = 0;
  MANTISSA_CUDA(cudaOccupancyMaxActiveClusters(&resident, reinterpret_cast<const void*>(kernel), &config));
  check(resident > 0, "cross_entropy: no cluster of {} blocks with {} bytes fits the device", kCluster, shared);
  const auto clusters = static_cast<unsigned>(std::min(args.rows, int64_t{resident}));
  launch(device, {.blocks = clusters * kCluster, .threads = static_cast<unsigned>(threads), .shared_bytes = shared},
         kernel, args);
}

template <class T>
void launch_all(CudaDevice& device, Args args) {
  constexpr int64_t kCount = 16 / sizeof(T);
  const int64_t groups = ceil_div(args.pitch, kCount);
  const bool aligned = args.pitch % kCount == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  int cluster = 1;
  while (aligned && cluster < 8 && ceil_div(groups, int64_t{cluster}) * 16 > kSliceBytes) cluster *= 2;
  args.slice = static_cast<int>(ceil_div(groups, int64_t{cluster}));
  args.resident = aligned ? static_cast<int>(std::min(int64_t{args.slice}, kMostBytes / 16)) : 0;
  const int threads = static_cast<int>(std::min(int64_t{kThreads}, ceil_div(int64_t{args.slice}, int64_t{32}) * 32));
  const size_t shared = static_cast<size_t>(args.resident) * 16;
  if (!aligned) return launch_rows<T, 1, false>(device, args, threads, shared);
  switch (cluster) {
    case 1:
      return launch_rows<T, 1, true>(device, args, threads, shared);
    case 2:
      return launch_rows<T, 2, true>(device, args, threads, shared);
    case 4:
      return launch_rows<T, 4, true>(device, args, threads, shared);
    default:
      return launch_rows<T, 8, true>(device, args, threads, shared);
  }
}

}  // namespace

void cross_entropy(Exec& exec, LossSums* sums, Tensor logits, int64_t vocab, ConstTensor labels,
                   const float* grad_scale, float z_weight) {
  const OpScope scope(exec, "cross_entropy");
  const int64_t rows = logits.dim(0);
  check(cross_entropy_scratch_bytes(rows) <= exec.shared_scratch_bytes(),
        "cross_entropy: needs {} bytes of shared scratch, has {}", cross_entropy_scratch_bytes(rows),
        exec.shared_scratch_bytes());
  if (rows == 0) return;
  auto* loss = reinterpret_cast<double*>(exec.shared_scratch());
  const Args args{.logits = logits.data,
                  .rows = rows,
                  .pitch = logits.dim(1),
                  .vocab = static_cast<int>(vocab),
                  .slice = 0,
                  .resident = 0,
                  .labels = labels.as<int32_t>(),
                  .grad_scale = grad_scale,
                  .z_weight = z_weight,
                  .loss = loss,
                  .lse = loss + rows};
  CudaDevice& device = device_of(exec);
  if (logits.dtype == DType::kBF16)
    launch_all<Bf16>(device, args);
  else
    launch_all<float>(device, args);
  launch(device, {.blocks = 1, .threads = kSumThreads}, add_losses_kernel, sums, loss, loss + rows,
         labels.as<int32_t>(), rows);
}

}  // namespace mantissa::cuda
