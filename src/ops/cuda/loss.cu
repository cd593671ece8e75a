// A row of logits is read once: bulk copies bring it into the shared memory of a block, or of a cluster of 2 to 8,
// while the row before is written. Threads take their groups of 16 bytes into registers, and keep them from the sum to
// the store. Rows that are not aligned or too long are read twice, by a block each.
#include "ops/loss.h"

#include <cooperative_groups.h>

#include <algorithm>

#include "ops/cuda/common/ptx.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;  // of a multiprocessor, 128 registers each: one block, or several of short rows
constexpr int kShortThreads = 128;
constexpr int kHeld = 20;        // groups that a thread holds
constexpr int kMostCluster = 8;  // blocks
constexpr int32_t kIgnored = -100;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kInfinity = __builtin_huge_valf();

struct Args {
  void* logits;
  int64_t rows, pitch;  // pitch: columns with the padding, P
  int vocab;
  int slice;  // groups of a row in one block
  const int32_t* labels;
  const StepState* state;  // null: losses alone
  double *loss, *lse;      // [R]
};

// The sum of 2^(x log2(e) - c) over logits x, c = max x log2(e).
struct Partial {
  float c, sum;
};
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
      reinterpret_cast<uint4*>(row)[group] = narrow(x);
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        if (int64_t{group} * kCount + k < pitch) row[int64_t{group} * kCount + k] = from_f32<T>(x[k]);
    }
  }
  __device__ __forceinline__ static uint4 narrow(const float (&x)[kCount]) {
    if constexpr (sizeof(T) == 4) {
      return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
    } else {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * j], x[2 * j + 1]);
        words[j] = reinterpret_cast<const uint32_t&>(pair);
      }
      return make_uint4(words[0], words[1], words[2], words[3]);
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

// Where the partial sums of a row's blocks meet. The store carries its own arrival: a cluster's barrier would wait, at
// every row, for all that was written to global memory.
template <int kCluster>
struct Exchange {
  Partial parts[2][kCluster];  // one half a row: who sends row r + 2 has been sent row r + 1, by readers of row r
  uint64_t arrivals[2];        // barriers of one arrival, by who says how many bytes are to come

  // By threads 0 to kCluster - 1, each to the block of its number.
  __device__ __forceinline__ void send(const Partial& mine, int half, int rank, int thread) {
    if (thread == 0) expect_bytes(shared_address(&arrivals[half]), kCluster * sizeof(Partial));
    uint32_t to, there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(to)
                 : "r"(shared_address(&parts[half][rank])), "r"(thread));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_address(&arrivals[half])), "r"(thread));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(mine.c), "f"(mine.sum), "r"(there)
                 : "memory");
  }
};

// A row's sums as its threads need them. c stands for c / log2(e) as FP32 multiplied it, so the losses and the gradient
// share one softmax.
struct Softmax {
  Partial all;
  float scale;  // of 2^(x log2(e) - c) in the gradient: d(loss + z lse²)/dx_j = p_j (1 + 2 z lse) - [j = label]

  __device__ __forceinline__ Softmax(const Partial& sums, float grad_scale, float z_weight) : all(sums) {
    float weight = grad_scale;
    if (z_weight != 0) weight *= 1 + 2 * z_weight * (all.c / kLog2e + logf(all.sum));
    scale = weight / all.sum;
  }
  __device__ __forceinline__ float gradient(float x) const { return exp2_fast(fmaf(x, kLog2e, -all.c)) * scale; }
  __device__ __forceinline__ void put_losses(const Args& a, int64_t r, float target) const {
    const double log_sum = log(static_cast<double>(all.sum)), top = all.c / static_cast<double>(kLog2e);
    a.loss[r] = log_sum + (top - target);
    a.lse[r] = top + log_sum;
  }
};

// The partial sums of a block's warps, in each of its warps; `of_warp` may be written again after two more calls.
template <int kWarps>
__device__ __forceinline__ void share(Partial (&of_warp)[kWarps], const Partial& mine) {
  const Partial of_lanes = combine_warp(mine);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = of_lanes;
  __syncthreads();
}
template <int kWarps>
__device__ __forceinline__ Partial combine_block(const Partial (&of_warp)[kWarps]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return combine_warp(lane < min(kWarps, static_cast<int>(blockDim.x) / 32) ? of_warp[lane] : Partial{-kInfinity, 0});
}

template <class T, int kBlock, int kCluster>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kBlock, kThreads / kBlock)
    cross_entropy_held_kernel(Args a) {
  using G = Group<T, true>;
  extern __shared__ __align__(128) uint4 held[];  // [slice]
  __shared__ Partial of_warp[2][kBlock / 32];
  __shared__ Exchange<kCluster> exchange;
  __shared__ uint64_t held_full;
  const int thread = static_cast<int>(threadIdx.x), rank = static_cast<int>(blockIdx.x % kCluster);
  const int begin = rank * a.slice, count = min(a.slice, static_cast<int>(a.pitch / G::kCount) - begin);
  const int whole = max(a.vocab / G::kCount - begin, 0);  // groups before need no mask
  const int first_masked = thread + max(whole - thread + kBlock - 1, 0) / kBlock * kBlock;  // of the thread's
  const int64_t stride = gridDim.x / kCluster;
  const uint32_t full = shared_address(&held_full);
  const float grad_scale = a.state ? a.state->grad_scale : 0.0f, z_weight = a.state ? a.state->z_weight : 0.0f;
  const auto row_at = [&](int64_t r) { return static_cast<T*>(a.logits) + r * a.pitch + begin * G::kCount; };
  const auto load = [&](int64_t r) {
    const T* const from = row_at(r);
    const uint32_t bytes = static_cast<uint32_t>(count) * 16;
    expect_bytes(full, bytes);
    copy_bulk(shared_address(held), from, bytes, full);
  };
  let_next_begin();

  int64_t r = blockIdx.x / kCluster;
  if (r >= a.rows) return;
  int32_t label = a.labels[r];
  if (thread == 0) {
    make_barrier(full, 1);
    for (uint64_t& x : exchange.arrivals) make_barrier(shared_address(&x), 1);
    publish_barriers();
    if (label != kIgnored) load(r);
  }
  if constexpr (kCluster > 1)
    cg::this_cluster().sync();  // all blocks run before one writes into another
  else
    __syncthreads();
  for (uint32_t turn = 0; r < a.rows; r += stride) {
    T* row = row_at(r);
    uint4* to = reinterpret_cast<uint4*>(row) + thread;
    const int32_t next_label = r + stride < a.rows ? a.labels[r + stride] : kIgnored;
    const bool prefetches = thread == 0 && next_label != kIgnored;
    if (label == kIgnored) {
      if (prefetches) load(r + stride);
      if (a.state)
        for (int i = 0; thread + i < count; i += kBlock) to[i] = make_uint4(0, 0, 0, 0);
      if (rank == 0 && thread == 0) a.loss[r] = a.lse[r] = 0;
      label = next_label;
      continue;
    }
    const int label_group = label / G::kCount - begin;
    const bool has_label = label_group >= 0 && label_group < count && label_group % kBlock == thread;
    wait_barrier(full, turn % 2);
    if (whole < count)  // the padding takes no part
      for (int i = first_masked; i < count; i += kBlock) {
        T* x = reinterpret_cast<T*>(held + i);
        for (int k = 0; k < G::kCount; ++k)
          if ((begin + i) * G::kCount + k >= a.vocab) x[k] = from_f32<T>(-kInfinity);
      }
    float target = 0;
    if (has_label) target = to_f32(reinterpret_cast<const T*>(held)[label - begin * G::kCount]);

    uint4 mine[kHeld];
    float most = -kInfinity;
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (thread + j * kBlock < count) {
        mine[j] = held[thread + j * kBlock];
        most = G::max_of(most, mine[j]);
      }
    const float c = most * kLog2e;
    const float shift = c > -kInfinity ? c : 0.0f;  // NaN in x, or Inf - Inf, reaches the sum
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (thread + j * kBlock < count) {
        float x[G::kCount];
        G::widen(x, mine[j]);
#pragma unroll
        for (int k = 0; k < G::kCount; ++k) sums[k % 4] += exp2_fast(fmaf(x[k], kLog2e, -shift));
      }
    const uint32_t half = turn % 2;
    hand_to_async();  // before the barrier in share() and the next row's copy
    share(of_warp[half], {c, (sums[0] + sums[1]) + (sums[2] + sums[3])});
    if (kCluster > 1 && thread < 32) {
      const Partial of_block = combine_block(of_warp[half]);
      if (thread < kCluster) exchange.send(of_block, half, rank, thread);
    }
    if (prefetches) load(r + stride);
    Partial all;
    if constexpr (kCluster > 1) {
      wait_barrier_of_cluster(shared_address(&exchange.arrivals[half]), turn / 2 % 2);
      all = combine_all(exchange.parts[half]);
    } else {
      all = combine_block(of_warp[half]);
    }
    ++turn;

    const Softmax softmax(all, grad_scale, z_weight);
    if (a.state) {
#pragma unroll
      for (int j = 0; j < kHeld; ++j)
        if (thread + j * kBlock < count) {
          float x[G::kCount];
          G::widen(x, mine[j]);
#pragma unroll
          for (int k = 0; k < G::kCount; ++k) x[k] = softmax.gradient(x[k]);
          to[j * kBlock] = G::narrow(x);
        }
      asm volatile("" ::: "memory");  // over the thread's own groups
      if (has_label) row[label - begin * G::kCount] = from_f32<T>(softmax.gradient(target) - grad_scale);
      if (whole < count && !(fabsf(softmax.scale) < kInfinity))  // zero times NaN
        for (int i = first_masked; i < count; i += kBlock)
          for (int k = 0; k < G::kCount; ++k)
            if ((begin + i) * G::kCount + k >= a.vocab) row[i * G::kCount + k] = from_f32<T>(0.0f);
    }
    if (has_label) softmax.put_losses(a, r, target);
    label = next_label;
  }
  if constexpr (kCluster > 1) cg::this_cluster().sync();  // no block ends before it has been sent all
}

// A block a row, which is read again for the gradient.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads) cross_entropy_rows_kernel(Args a) {
  using G = Group<T, kAligned>;
  __shared__ Partial of_warp[kThreads / 32];
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int groups = static_cast<int>(ceil_div(a.pitch, int64_t{G::kCount}));
  const int64_t r = blockIdx.x;
  const int32_t label = a.labels[r];
  T* row = static_cast<T*>(a.logits) + r * a.pitch;
  let_next_begin();
  if (label == kIgnored) {
    const float zeros[G::kCount] = {};
    if (a.state)
      for (int i = thread; i < groups; i += threads) G::write(row, a.pitch, i, zeros);
    if (thread == 0) a.loss[r] = a.lse[r] = 0;
    return;
  }
  const float target = to_f32(row[label]);
  Partial partial{-kInfinity, 0};
  for (int i = thread; i < groups; i += threads) {
    float x[G::kCount], most = -kInfinity;
    G::widen(x, G::read(row, a.pitch, i));
    G::mask(x, i, a.vocab, -kInfinity);
#pragma unroll
    for (int k = 0; k < G::kCount; ++k) most = fmaxf(most, x[k]);
    const float c = fmaxf(partial.c, most * kLog2e);
    const float shift = c > -kInfinity ? c : 0.0f;
    float sum = partial.sum * rescale(partial.c, c);
#pragma unroll
    for (int k = 0; k < G::kCount; ++k) sum += exp2_fast(fmaf(x[k], kLog2e, -shift));
    partial = {c, sum};
  }
  share(of_warp, partial);  // all have read the target
  const float grad_scale = a.state ? a.state->grad_scale : 0.0f, z_weight = a.state ? a.state->z_weight : 0.0f;
  const Softmax softmax(combine_block(of_warp), grad_scale, z_weight);
  if (thread == 0) softmax.put_losses(a, r, target);
  if (!a.state) return;
  for (int i = thread; i < groups; i += threads) {
    float x[G::kCount];
    G::widen(x, G::read(row, a.pitch, i));
#pragma unroll
    for (int k = 0; k < G::kCount; ++k)
      x[k] = softmax.gradient(x[k]) - (i * G::kCount + k == label ? grad_scale : 0.0f);
    G::mask(x, i, a.vocab, 0);
    G::write(row, a.pitch, i, x);
  }
}

constexpr int kSumThreads = 1024;

// *sums += the rows' values; thread t adds rows t, t + 1024, ..., then the threads' sums are halved in order.
__global__ void __launch_bounds__(kSumThreads)
    cross_entropy_sum_kernel(LossSums* sums, const double* loss, const double* lse, const int32_t* labels,
                             int64_t rows) {
  __shared__ double losses[kSumThreads], squares[kSumThreads];
  __shared__ int32_t valid[kSumThreads];
  const int t = static_cast<int>(threadIdx.x);
  double loss_sum = 0, z_sum = 0;
  int32_t count = 0;
  wait_for_last();
#pragma unroll 4
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
template <class T, int kBlock, int kCluster>
void launch_held(CudaDevice& device, Args args, int64_t groups) {
  args.slice = static_cast<int>(ceil_div(groups, int64_t{kCluster}));
  const size_t shared = static_cast<size_t>(args.slice) * 16;
  auto* kernel = cross_entropy_held_kernel<T, kBlock, kCluster>;
  device.allow_shared(reinterpret_cast<const void*>(kernel), shared);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(kCluster));
  config.blockDim = dim3(static_cast<unsigned>(kBlock));
  config.dynamicSmemBytes = shared;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int resident = 0;
  MANTISSA_CUDA_ON(device, cudaOccupancyMaxActiveClusters(&resident, reinterpret_cast<const void*>(kernel), &config));
  check(resident > 0, "cross_entropy: no cluster of {} blocks with {} bytes fits the device", kCluster, shared);
  const auto clusters = static_cast<unsigned>(std::min(args.rows, int64_t{resident}));
  launch(device, {.blocks = clusters * kCluster, .threads = kBlock, .shared_bytes = shared}, kernel, args);
}

template <class T>
void launch_all(CudaDevice& device, const Args& args) {
  constexpr int64_t kCount = 16 / sizeof(T);
  const int64_t groups = ceil_div(args.pitch, kCount);
  const bool aligned = args.pitch % kCount == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  if (!aligned || groups > kMostCluster * kThreads * kHeld) {
    const auto threads = static_cast<unsigned>(std::min(int64_t{kThreads}, ceil_div(groups, int64_t{32}) * 32));
    device.say_slow("cross_entropy", aligned ? "rows are too wide for registers: each is read twice"
                                             : "rows are not whole aligned groups of 16 bytes: each is read twice");
    const Grid grid{.blocks = static_cast<unsigned>(args.rows), .threads = threads};
    return launch(device, grid, aligned ? cross_entropy_rows_kernel<T, true> : cross_entropy_rows_kernel<T, false>,
                  args);
  }
  if (groups <= kShortThreads * kHeld) return launch_held<T, kShortThreads, 1>(device, args, groups);
  if (groups <= kThreads * kHeld) return launch_held<T, kThreads, 1>(device, args, groups);
  if (groups <= 2 * kThreads * kHeld) return launch_held<T, kThreads, 2>(device, args, groups);
  if (groups <= 4 * kThreads * kHeld) return launch_held<T, kThreads, 4>(device, args, groups);
  return launch_held<T, kThreads, kMostCluster>(device, args, groups);
}

}  // namespace

void cross_entropy(Exec& exec, LossSums* sums, Tensor logits, int64_t vocab, ConstTensor labels,
                   const StepState* state) {
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
                  .labels = labels.as<int32_t>(),
                  .state = state,
                  .loss = loss,
                  .lse = loss + rows};
  CudaDevice& device = device_of(exec);
  with_float(logits.dtype, [&]<class T>(T) { launch_all<T>(device, args); });
  launch(device, {.blocks = 1, .threads = kSumThreads, .follows = true}, cross_entropy_sum_kernel, sums, loss,
         loss + rows, labels.as<int32_t>(), rows);
}

}  // namespace mantissa::cuda
