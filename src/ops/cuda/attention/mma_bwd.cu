// The own attention's backward pass on BF16, in two kernels so that no two blocks add to one place: a block owns 128
// keys and walks over all queries of its group's heads that see them, or 128 queries and walks over their keys. Both
// recompute P = exp(scale q kᵀ - lse), dS = P ∘ (dO vᵀ - delta).
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/attention/tile.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kTile = 128, kM = 1, kWarps = 8, kThreads = kWarps * 32;
static_assert(kWarps * kM * 16 == kTile);

enum class Part { kBoth, kKeys, kValues };  // which gradients a block's registers hold

template <int kWidth, int kStep>
constexpr size_t keys_bytes() {
  return (2 * kTile + 4 * kStep) * (kWidth + kPad) * sizeof(Bf16) + 4 * kStep * sizeof(float);
}

// dk, dv of 128 keys. Rows of the fragments are keys, so that P and dS are the left factors of dv and dk as they are.
template <int kWidth, int kStep, Part kPart>
__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_keys_mma_kernel(Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse, const float* delta,
                                  const AttentionView a) {
  constexpr int kLine = kWidth + kPad, kN = kStep / 8;
  constexpr bool kOfKeys = kPart != Part::kValues, kOfValues = kPart != Part::kKeys;
  extern __shared__ __align__(16) Bf16 shared[];
  Bf16 *const keys = shared, *const values = keys + kTile * kLine;
  Bf16* const stages = values + kTile * kLine;                               // queries and dout of two steps
  float* const rows = reinterpret_cast<float*>(stages + 4 * kStep * kLine);  // their lse and delta

  const int kv = blockIdx.x % a.kv_heads,
            first = key_tile<kTile>(a, blockIdx.x / a.kv_heads, gridDim.x / a.kv_heads) * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp * kM * 16;
  copy_tile<kTile, kWidth, kThreads>(keys, qkv + a.key_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);
  copy_tile<kTile, kWidth, kThreads>(values, qkv + a.value_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);

  const int warp_first = first + warp_row, warp_last = min(warp_first + kM * 16, a.tokens) - 1;
  int end[kM][2];  // of the thread's rows' documents
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) end[m][h] = document_of(a, warp_first + m * 16 + h * 8 + lane / 4).end;
  const int end_first = document_of(a, warp_first).end, end_last = document_of(a, warp_last).end;
  const int block_end = document_of(a, first + kTile - 1).end;
  const int steps_a_head = (block_end - first + kStep - 1) / kStep, steps = steps_a_head * a.group();

  const auto copy_step = [&](int step) {
    const int head = kv * a.group() + step / steps_a_head, at = first + step % steps_a_head * kStep;
    Bf16* const stage = stages + step % 2 * 2 * kStep * kLine;
    copy_tile<kStep, kWidth, kThreads>(stage, qkv + int64_t{head} * a.head_dim, a.qkv_stride, at, a.tokens, a.head_dim);
    copy_tile<kStep, kWidth, kThreads>(stage + kStep * kLine, dout + int64_t{head} * a.head_dim, a.out_stride, at,
                                       a.tokens, a.head_dim);
    if (threadIdx.x < 2 * kStep) {
      const int row = at + static_cast<int>(threadIdx.x) % kStep;
      const bool valid = row < a.tokens;
      copy4(shared_address(rows + step % 2 * 2 * kStep + threadIdx.x),
            (threadIdx.x < kStep ? lse : delta) + (valid ? int64_t{head} * a.tokens + row : 0), valid);
    }
    commit_copies();
  };
  copy_step(0);

  float dk[kOfKeys ? kM : 1][kOfKeys ? kWidth / 8 : 1][4], dv[kOfValues ? kM : 1][kOfValues ? kWidth / 8 : 1][4];
  clear(dk), clear(dv);
  const LaneOffsets<kWidth> offsets;
  const uint32_t own_keys = shared_address(keys + warp_row * kLine);
  const uint32_t own_values = shared_address(values + warp_row * kLine);

  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    const int at = first + step % steps_a_head * kStep;
    if (at + kStep <= warp_first || at >= end_last) continue;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kStep * kLine);
    const float* const row_lse = rows + step % 2 * 2 * kStep + lane % 4 * 2;
    float p[kM][kN][4];
    multiply_rows<kWidth>(p, own_keys, stage, offsets);
    const bool masked = at < warp_last || at + kStep > end_first;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 log_sum = *reinterpret_cast<const float2*>(row_lse + n * 8);
      const float shift[2] = {log_sum.x * kLog2E, log_sum.y * kLog2E};
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float value = exp2_fast(fmaf(p[m][n][i], a.scale_log2, -shift[i % 2]));
          if (masked) {
            const int query = at + n * 8 + lane % 4 * 2 + i % 2, key = warp_first + m * 16 + i / 2 * 8 + lane / 4;
            if (query < key || query >= end[m][i / 2]) value = 0;
          }
          p[m][n][i] = value;
        }
    }
    if constexpr (kOfValues) accumulate<kWidth>(dv, p, stage + kStep * kLine * 2, offsets);
    if constexpr (kOfKeys) {
      float ds[kM][kN][4];
      multiply_rows<kWidth>(ds, own_values, stage + kStep * kLine * 2, offsets);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 product = *reinterpret_cast<const float2*>(row_lse + kStep + n * 8);
#pragma unroll
        for (int m = 0; m < kM; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) ds[m][n][i] = p[m][n][i] * (ds[m][n][i] - (i % 2 ? product.y : product.x));
      }
      accumulate<kWidth>(dk, ds, stage, offsets);
    }
  }

  float scale[kM][2], one[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m) scale[m][0] = scale[m][1] = a.scale, one[m][0] = one[m][1] = 1;
  if constexpr (kOfKeys)
    store_rows<kWidth, kM>(dk, scale, keys + warp_row * kLine, dqkv + a.key_column(kv), a.qkv_stride, warp_first,
                           a.tokens, a.head_dim);
  if constexpr (kOfValues)
    store_rows<kWidth, kM>(dv, one, values + warp_row * kLine, dqkv + a.value_column(kv), a.qkv_stride, warp_first,
                           a.tokens, a.head_dim);
}

template <int kWidth, int kStep>
constexpr size_t queries_bytes() {
  return (2 * kTile + 4 * kStep) * (kWidth + kPad) * sizeof(Bf16) + kTile * sizeof(int);
}

// dq of 128 queries of a head. kHeld: their fragments stay in registers.
template <int kWidth, int kStep, bool kHeld>
__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_queries_mma_kernel(Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                                     const float* delta, const AttentionView a) {
  constexpr int kLine = kWidth + kPad, kN = kStep / 8;
  extern __shared__ __align__(16) Bf16 shared[];
  Bf16 *const queries = shared, *const douts = queries + kTile * kLine;
  Bf16* const stages = douts + kTile * kLine;  // keys and values of two steps
  int* const begins = reinterpret_cast<int*>(stages + 4 * kStep * kLine);

  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kTile;  // long ones first
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp * kM * 16;
  const int end = min(first + kTile, a.tokens);
  copy_tile<kTile, kWidth, kThreads>(queries, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens,
                                     a.head_dim);
  copy_tile<kTile, kWidth, kThreads>(douts, dout + int64_t{head} * a.head_dim, a.out_stride, first, a.tokens,
                                     a.head_dim);
  if (threadIdx.x < kTile) begins[threadIdx.x] = document_of(a, first + threadIdx.x).begin;
  __syncthreads();
  const int key_begin = begins[0], steps = (end - key_begin + kStep - 1) / kStep;
  const Bf16 *const keys = qkv + a.key_column(kv), *const values = qkv + a.value_column(kv);
  const auto copy_step = [&](int step) {
    Bf16* const stage = stages + step % 2 * 2 * kStep * kLine;
    const int at = key_begin + step * kStep;
    copy_tile<kStep, kWidth, kThreads>(stage, keys, a.qkv_stride, at, end, a.head_dim);
    copy_tile<kStep, kWidth, kThreads>(stage + kStep * kLine, values, a.qkv_stride, at, end, a.head_dim);
    commit_copies();
  };
  copy_step(0);

  const int warp_first = first + warp_row, warp_last = warp_first + kM * 16 - 1;
  const int begin_first = begins[warp_row], begin_last = begins[warp_row + kM * 16 - 1];
  int begin[2];
  float shift[2], product[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp_row + h * 8 + lane / 4;
    const bool valid = first + row < a.tokens;
    const int64_t at = int64_t{head} * a.tokens + first + row;
    begin[h] = begins[row], shift[h] = valid ? lse[at] * kLog2E : 0, product[h] = valid ? delta[at] : 0;
  }
  const LaneOffsets<kWidth> offsets;
  const uint32_t own_queries = shared_address(queries + warp_row * kLine);
  const uint32_t own_douts = shared_address(douts + warp_row * kLine);
  Fragment q[kHeld ? kWidth / 16 : 1], d[kHeld ? kWidth / 16 : 1];
  float dq[kM][kWidth / 8][4];
  clear(dq);

  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    if constexpr (kHeld)
      if (step == 0)
#pragma unroll
        for (int k = 0; k < kWidth / 16; ++k)
          q[k] = load_matrix(own_queries + offsets.a + k * 32), d[k] = load_matrix(own_douts + offsets.a + k * 32);
    const int at = key_begin + step * kStep;
    if (at > warp_last || at + kStep <= begin_first) continue;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kStep * kLine);
    float p[kM][kN][4], ds[kM][kN][4];
    if constexpr (kHeld) {
      multiply_held<kWidth>(p, q, stage, offsets);
      multiply_held<kWidth>(ds, d, stage + kStep * kLine * 2, offsets);
    } else {
      multiply_rows<kWidth>(p, own_queries, stage, offsets);
      multiply_rows<kWidth>(ds, own_douts, stage + kStep * kLine * 2, offsets);
    }
    const bool masked = at + kStep - 1 > warp_first || at < begin_last;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float value = exp2_fast(fmaf(p[0][n][i], a.scale_log2, -shift[i / 2]));
        if (masked) {
          const int key = at + n * 8 + lane % 4 * 2 + i % 2, query = warp_first + i / 2 * 8 + lane / 4;
          if (key > query || key < begin[i / 2]) value = 0;
        }
        ds[0][n][i] = value * (ds[0][n][i] - product[i / 2]);
      }
    accumulate<kWidth>(dq, ds, stage, offsets);
  }

  const float scale[kM][2] = {{a.scale, a.scale}};
  store_rows<kWidth, kM>(dq, scale, queries + warp_row * kLine, dqkv + int64_t{head} * a.head_dim, a.qkv_stride,
                         warp_first, a.tokens, a.head_dim);
}

struct Job {
  CudaDevice& device;
  Bf16* dqkv;
  const Bf16 *dout, *qkv;
  const float *lse, *delta;
  const AttentionView& a;

  unsigned tiles() const { return static_cast<unsigned>((a.tokens + kTile - 1) / kTile); }
};

template <int kWidth, int kStep, Part kPart>
void start_keys(const Job& job) {
  launch(job.device,
         {.blocks = job.tiles() * static_cast<unsigned>(job.a.kv_heads),
          .threads = kThreads,
          .shared_bytes = keys_bytes<kWidth, kStep>()},
         attention_bwd_keys_mma_kernel<kWidth, kStep, kPart>, job.dqkv, job.dout, job.qkv, job.lse, job.delta, job.a);
}

template <int kWidth, int kStep, bool kHeld>
void start_queries(const Job& job) {
  launch(job.device,
         {.blocks = job.tiles() * static_cast<unsigned>(job.a.heads),
          .threads = kThreads,
          .shared_bytes = queries_bytes<kWidth, kStep>()},
         attention_bwd_queries_mma_kernel<kWidth, kStep, kHeld>, job.dqkv, job.dout, job.qkv, job.lse, job.delta,
         job.a);
}

template <int kWidth>
void start(const Job& job) {
  start_keys<kWidth, 64, Part::kBoth>(job);
  start_queries<kWidth, 64, true>(job);
}

}  // namespace

void backward_mma(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                  const float* delta, const AttentionView& a) {
  const Job job{device, dqkv, dout, qkv, lse, delta, a};
  if (a.head_dim <= 64) return start<64>(job);
  if (a.head_dim <= 96) return start<96>(job);
  if (a.head_dim <= 128) return start<128>(job);
  start_keys<256, 32, Part::kKeys>(job);
  start_keys<256, 32, Part::kValues>(job);
  start_queries<256, 32, false>(job);
}

}  // namespace mantissa::cuda
