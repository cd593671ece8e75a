// Decoding over a KV cache. It sees the cache's bytes in its own layout: keys [KV, P, D], a position's row after
// another's, in the memory of [KV, P/16, D, 16]; values [KV, P, V] as on a CPU. A cache that a CPU filled is not
// readable here, nor the other way round. Positions are cut into splits of 128, by their number in the sequence alone;
// a block computes one split of its rows, a second kernel joins a token's splits in order. Scratch:
// cached_attention_scratch_bytes(), of one token at least.
#include "ops/cached_attention.h"

#include "base/error.h"
#include "ops/cuda/attention/tile.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kSplit = static_cast<int>(kCachedAttentionSplit), kWarps = 4, kThreads = kWarps * 32;
constexpr int kRows = 16;      // of a product: tokens x heads of a group
constexpr int kRowBlocks = 4;  // that a block of threads takes one after another, its keys and values read once

template <class E>
struct Job {
  E *keys, *values;  // [KV, P, D], [KV, P, V]
  const E* qkv;      // [T, (N + 2 KV) D]
  E* out;
  float* sums;    // [T, N, S, D] of a split, with its own maximum
  float2* stats;  // [T, N, S]: the maximum as an exponent of two, the sum of exponentials
  int64_t capacity, qkv_stride;
  int length, tokens, heads, kv_heads, head_dim, value_width, splits;
  float scale_log2;

  __device__ int group() const { return heads / kv_heads; }
  __device__ const E* new_key(int kv, int position) const {
    return qkv + (position - length) * qkv_stride + int64_t{heads + kv} * head_dim;
  }
  __device__ const E* new_value(int kv, int position) const { return new_key(kv, position) + kv_heads * head_dim; }
  __device__ E* cached_key(int kv, int position) const { return keys + (kv * capacity + position) * head_dim; }
  __device__ E* cached_value(int kv, int position) const { return values + (kv * capacity + position) * value_width; }
};

// One split of positions of one kv head, for up to kRowBlocks x kRows rows: warps share the keys for the scores and the
// columns for the sums.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) cached_attention_split_kernel(const Job<Bf16> job) {
  constexpr int kLine = kWidth + kPad, kChunks = kWidth / 8, kWarpKeys = kSplit / kWarps, kColumns = kWidth / kWarps,
                kScoreLine = kSplit + kPad;
  extern __shared__ __align__(16) Bf16 shared[];
  Bf16 *const keys = shared, *const values = keys + kSplit * kLine, *const queries = values + kSplit * kLine;
  Bf16* const scores = queries + kRows * kLine;                               // [kRows, kSplit], as probabilities
  float* const tops = reinterpret_cast<float*>(scores + kRows * kScoreLine);  // [kWarps, kRows]
  float* const totals = tops + kWarps * kRows;

  const int kv = blockIdx.x % job.kv_heads, split = blockIdx.x / job.kv_heads, group = job.group();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = split * kSplit, end = min(begin + kSplit, job.length + job.tokens), rows = job.tokens * group;
  const int first_row = blockIdx.y * kRowBlocks * kRows, last_row = min(first_row + kRowBlocks * kRows, rows);
  if (job.length + (last_row - 1) / group < begin) return;  // no row of this block sees the split

  const auto read = [&](Bf16* tile, bool of_keys) {
    for (int at = threadIdx.x; at < kSplit * kChunks; at += kThreads) {
      const int row = at / kChunks, column = at % kChunks * 8, position = begin + row;
      const bool valid = position < end && column < job.head_dim;
      const Bf16* from = job.qkv;
      if (valid)
        from = position >= job.length ? (of_keys ? job.new_key(kv, position) : job.new_value(kv, position))
                                      : (of_keys ? job.cached_key(kv, position) : job.cached_value(kv, position));
      copy16(shared_address(tile + row * kLine + column), from + (valid ? column : 0), valid);
    }
    commit_copies();
  };
  const auto read_queries = [&](int row0) {
    for (int at = threadIdx.x; at < kRows * kChunks; at += kThreads) {
      const int row = row0 + at / kChunks, column = at % kChunks * 8;
      const bool valid = row < rows && column < job.head_dim;
      const Bf16* from = job.qkv;
      if (valid) from += row / group * job.qkv_stride + int64_t{kv * group + row % group} * job.head_dim + column;
      copy16(shared_address(queries + at / kChunks * kLine + column), from, valid);
    }
  };
  // The first block of rows of which one sees the split.
  int row0 = first_row;
  while (job.length + (min(row0 + kRows, rows) - 1) / group < begin) row0 += kRows;
  read_queries(row0);
  read(keys, true);
  read(values, false);
  // The new positions of the split enter the cache; this call reads them from qkv. The last rows see every split.
  if (blockIdx.y == gridDim.y - 1) {
    const int chunks = job.head_dim / 8, fresh = max(begin, job.length);
    for (int at = threadIdx.x; at < (end - fresh) * chunks; at += kThreads) {
      const int position = fresh + at / chunks, column = at % chunks * 8;
      *reinterpret_cast<uint4*>(job.cached_key(kv, position) + column) =
          *reinterpret_cast<const uint4*>(job.new_key(kv, position) + column);
      *reinterpret_cast<uint4*>(job.cached_value(kv, position) + column) =
          *reinterpret_cast<const uint4*>(job.new_value(kv, position) + column);
    }
  }

  const LaneOffsets<kWidth> offsets;
  const LaneOffsets<kSplit> score_offsets;
  for (bool loaded = true; row0 < last_row; row0 += kRows, loaded = false) {
    if (!loaded) {
      read_queries(row0);
      commit_copies();
    }
    loaded ? wait_copies<1>() : wait_copies<0>();
    __syncthreads();

    float s[1][kWarpKeys / 8][4];
    multiply_rows<kWidth>(s, shared_address(queries), shared_address(keys + warp * kWarpKeys * kLine), offsets);
    float shift[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row0 + h * 8 + lane / 4, position = row < rows ? job.length + row / group : -1;
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kWarpKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          if (begin + warp * kWarpKeys + n * 8 + lane % 4 * 2 + i % 2 > position) s[0][n][i] = -INFINITY;
          top = fmaxf(top, s[0][n][i]);
        }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      if (lane % 4 == 0) tops[warp * kRows + h * 8 + lane / 4] = top;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = h * 8 + lane / 4;
      float top = tops[row];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) top = fmaxf(top, tops[w * kRows + row]);
      shift[h] = top == -INFINITY ? 0.0f : top * job.scale_log2;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kWarpKeys / 8; ++n) {
        const float p0 = exp2_fast(fmaf(s[0][n][2 * h], job.scale_log2, -shift[h])),
                    p1 = exp2_fast(fmaf(s[0][n][2 * h + 1], job.scale_log2, -shift[h]));
        sum += p0 + p1;
        *reinterpret_cast<uint32_t*>(scores + row * kScoreLine + warp * kWarpKeys + n * 8 + lane % 4 * 2) =
            pack(p0, p1);
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      if (lane % 4 == 0) totals[warp * kRows + row] = sum;
    }
    wait_copies<0>();
    __syncthreads();

    float o[kColumns / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kSplit / 16; ++k) {
      const Fragment p = load_matrix(shared_address(scores) + score_offsets.a + k * 32);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        const Fragment v =
            load_matrix_transposed(shared_address(values + k * 16 * kLine + warp * kColumns + n * 16) + offsets.a);
        multiply(o[2 * n], p, v.x[0], v.x[1]);
        multiply(o[2 * n + 1], p, v.x[2], v.x[3]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row0 + h * 8 + lane / 4;
      if (row >= rows || job.length + row / group < begin) continue;
      const int64_t at = (int64_t{row / group} * job.heads + kv * group + row % group) * job.splits + split;
      if (warp == 0 && lane % 4 == 0) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += totals[w * kRows + h * 8 + lane / 4];
        job.stats[at] = make_float2(shift[h], sum);
      }
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const int column = warp * kColumns + n * 8 + lane % 4 * 2;
        if (column < job.head_dim)
          *reinterpret_cast<float2*>(job.sums + at * job.head_dim + column) = make_float2(o[n][2 * h], o[n][2 * h + 1]);
      }
    }
    __syncthreads();
  }
}

// The same for any element and head_dim in FP32 arithmetic: a block for a split of one token and head, a thread for a
// position, then for a column.
template <class E>
__global__ void __launch_bounds__(kSplit) cached_attention_split_plain_kernel(const Job<E> job) {
  __shared__ float query[256], p[kSplit], of_warps[2][kSplit / 32];
  const int head = blockIdx.x % job.heads, token = blockIdx.x / job.heads, split = blockIdx.y, kv = head / job.group();
  const int last = job.length + token, begin = split * kSplit, position = begin + static_cast<int>(threadIdx.x);
  if (last < begin) return;
  const E* const own = job.qkv + token * job.qkv_stride;
  if (head % job.group() == 0 && last < begin + kSplit)
    for (int d = threadIdx.x; d < job.head_dim; d += kSplit) {
      job.cached_key(kv, last)[d] = job.new_key(kv, last)[d];
      job.cached_value(kv, last)[d] = job.new_value(kv, last)[d];
    }
  for (int d = threadIdx.x; d < job.head_dim; d += kSplit) query[d] = to_f32(own[int64_t{head} * job.head_dim + d]);
  __syncthreads();
  float score = -INFINITY;
  if (position <= last) {
    const E* const key = position >= job.length ? job.new_key(kv, position) : job.cached_key(kv, position);
    score = 0;
    for (int d = 0; d < job.head_dim; ++d) score = fmaf(query[d], to_f32(key[d]), score);
  }
  float top = score;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  if (threadIdx.x % 32 == 0) of_warps[0][threadIdx.x / 32] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kSplit / 32; ++w) top = fmaxf(top, of_warps[0][w]);
  const float shift = top * job.scale_log2;
  const float mine = exp2f(fmaf(score, job.scale_log2, -shift));
  p[threadIdx.x] = mine;
  float sum = mine;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warps[1][threadIdx.x / 32] = sum;
  __syncthreads();
  const int64_t at = (int64_t{token} * job.heads + head) * job.splits + split;
  if (threadIdx.x == 0) {
    sum = 0;
    for (int w = 0; w < kSplit / 32; ++w) sum += of_warps[1][w];
    job.stats[at] = make_float2(shift, sum);
  }
  const int count = min(kSplit, last + 1 - begin);
  for (int d = threadIdx.x; d < job.head_dim; d += kSplit) {
    float o = 0;
    for (int j = 0; j < count; ++j) {
      const E* const value = begin + j >= job.length ? job.new_value(kv, begin + j) : job.cached_value(kv, begin + j);
      o = fmaf(p[j], to_f32(value[d]), o);
    }
    job.sums[at * job.head_dim + d] = o;
  }
}

constexpr int kJoinWarps = 8;

// out of 32 columns of one token and head: warps join every eighth split, then their sums are joined in order.
template <class E>
__global__ void __launch_bounds__(kJoinWarps * 32) cached_attention_join_kernel(const Job<E> job) {
  __shared__ float tops[kJoinWarps], totals[kJoinWarps], sums[kJoinWarps][32];
  const int unit = blockIdx.x, token = unit / job.heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int count = (job.length + token) / kSplit + 1, column = blockIdx.y * 32 + lane;
  const float2* const stats = job.stats + int64_t{unit} * job.splits;
  const float* const from = job.sums + int64_t{unit} * job.splits * job.head_dim + min(column, job.head_dim - 1);
  float top = -INFINITY, o = 0, total = 0;
  for (int first = warp; first < count; first += kJoinWarps * 32) {  // 32 splits of the warp, one a lane
    const int own = first + lane * kJoinWarps, some = min(32, (count - first + kJoinWarps - 1) / kJoinWarps);
    const float2 of_split = own < count ? stats[own] : make_float2(-INFINITY, 0);
    float highest = fmaxf(top, of_split.x);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, step));
    const float keep = exp2f(top - highest), weight = exp2f(of_split.x - highest);
    top = highest, o *= keep, total *= keep;
#pragma unroll 8
    for (int i = 0; i < some; ++i) {
      const float w = __shfl_sync(~0u, weight, i);
      total = fmaf(__shfl_sync(~0u, of_split.y, i), w, total);
      o = fmaf(from[int64_t{first + i * kJoinWarps} * job.head_dim], w, o);
    }
  }
  sums[warp][lane] = o;
  if (lane == 0) tops[warp] = top, totals[warp] = total;
  __syncthreads();
  if (warp != 0 || column >= job.head_dim) return;
#pragma unroll
  for (int w = 0; w < kJoinWarps; ++w) top = fmaxf(top, tops[w]);
  o = total = 0;
#pragma unroll
  for (int w = 0; w < kJoinWarps; ++w) {
    const float weight = exp2f(tops[w] - top);
    o = fmaf(sums[w][lane], weight, o), total = fmaf(totals[w], weight, total);
  }
  job.out[int64_t{unit} * job.head_dim + column] = from_f32<E>(o / total);
}

template <int kWidth>
constexpr size_t shared_bytes() {
  return ((2 * kSplit + kRows) * (kWidth + kPad) + kRows * (kSplit + kPad)) * sizeof(Bf16) +
         2 * kWarps * kRows * sizeof(float);
}

template <int kWidth>
void start(CudaDevice& device, const Job<Bf16>& job) {
  const int rows = job.tokens * (job.heads / job.kv_heads);
  launch(device,
         {.blocks = dim3(static_cast<unsigned>(job.kv_heads * job.splits),
                         static_cast<unsigned>(ceil_div(rows, kRows * kRowBlocks))),
          .threads = kThreads,
          .shared_bytes = shared_bytes<kWidth>()},
         cached_attention_split_kernel<kWidth>, job);
}

template <class E>
void start_plain(CudaDevice& device, const Job<E>& job) {
  launch(device,
         {.blocks = dim3(static_cast<unsigned>(job.tokens * job.heads), static_cast<unsigned>(job.splits)),
          .threads = kSplit},
         cached_attention_split_plain_kernel<E>, job);
}

template <class E>
void run(Exec& exec, const Tensor& out, const KvCache& cache, int64_t length, const ConstTensor& qkv,
         const HeadLayout& layout, float scale) {
  CudaDevice& device = device_of(exec);
  const int64_t tokens = qkv.dim(0), dim = layout.head_dim;
  const int64_t a_token = cached_attention_scratch_bytes(layout, length + tokens, 1);
  const int64_t at_once = exec.shared_scratch_bytes() / a_token;
  check(at_once > 0, "cached_attention: {} bytes of scratch, expected {} for a token behind {}",
        exec.shared_scratch_bytes(), a_token, length);
  for (int64_t first = 0; first < tokens; first += at_once) {
    const int64_t count = std::min(at_once, tokens - first), splits = ceil_div(length + first + count, int64_t{kSplit});
    E* const y = static_cast<E*>(out.data) + first * layout.heads * dim;
    auto* const stats = reinterpret_cast<float2*>(exec.shared_scratch());
    const Job<E> job{.keys = static_cast<E*>(cache.keys.data),
                     .values = static_cast<E*>(cache.values.data),
                     .qkv = static_cast<const E*>(qkv.data) + first * layout.qkv_cols(),
                     .out = y,
                     .sums = reinterpret_cast<float*>(stats + count * layout.heads * splits),
                     .stats = stats,
                     .capacity = cache.capacity(),
                     .qkv_stride = layout.qkv_cols(),
                     .length = static_cast<int>(length + first),
                     .tokens = static_cast<int>(count),
                     .heads = static_cast<int>(layout.heads),
                     .kv_heads = static_cast<int>(layout.kv_heads),
                     .head_dim = static_cast<int>(dim),
                     .value_width = static_cast<int>(cache.values.dim(2)),
                     .splits = static_cast<int>(splits),
                     .scale_log2 = scale * kLog2E};
    if constexpr (sizeof(E) == 4)
      start_plain(device, job);
    else if (dim % 8 != 0 || reinterpret_cast<uintptr_t>(qkv.data) % 16 != 0)
      start_plain(device, job);
    else
      dim <= 64 ? start<64>(device, job) : dim <= 128 ? start<128>(device, job) : start<256>(device, job);
    launch(
        device,
        {.blocks = dim3(static_cast<unsigned>(count * layout.heads), static_cast<unsigned>(ceil_div(dim, int64_t{32}))),
         .threads = kJoinWarps * 32},
        cached_attention_join_kernel<E>, job);
  }
}

}  // namespace

void cached_attention(Exec& exec, Tensor out, const KvCache& cache, int64_t length, ConstTensor qkv,
                      const HeadLayout& layout, float scale) {
  const OpScope scope(exec, "cached_attention");
  with_float(qkv.dtype, [&]<class T>(T) { run<T>(exec, out, cache, length, qkv, layout, scale); });
}

}  // namespace mantissa::cuda
