// The own attention's forward pass on BF16. A block owns 128 queries of a head and walks over their keys, 64 at a time.
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/attention/tile.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kQueries = 128, kKeys = 64;

template <int kWidth, int kWarps>
constexpr size_t shared_bytes() {
  return (kQueries + 4 * kKeys) * (kWidth + kPad) * sizeof(Bf16) + kQueries * sizeof(int);
}

template <int kWidth, int kWarps, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    attention_fwd_mma_kernel(Bf16* out, float* lse, const Bf16* qkv, const AttentionView a) {
  constexpr int kM = kQueries / 16 / kWarps, kThreads = kWarps * 32, kLine = kWidth + kPad, kN = kKeys / 8;
  extern __shared__ __align__(16) Bf16 shared[];
  Bf16* const queries = shared;
  Bf16* const stages = shared + kQueries * kLine;  // keys and values of two steps
  int* const begins = reinterpret_cast<int*>(stages + 4 * kKeys * kLine);

  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kQueries;  // long ones first
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_row = warp * kM * 16;
  const int end = min(first + kQueries, a.tokens);

  copy_tile<kQueries, kWidth, kThreads>(queries, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens,
                                        a.head_dim);
  if (threadIdx.x < kQueries) begins[threadIdx.x] = document_of(a, first + threadIdx.x).begin;
  __syncthreads();
  const int key_begin = begins[0], steps = (end - key_begin + kKeys - 1) / kKeys;
  const Bf16 *const keys = qkv + a.key_column(kv), *const values = qkv + a.value_column(kv);
  const auto copy_step = [&](int step) {
    Bf16* const stage = stages + step % 2 * 2 * kKeys * kLine;
    const int at = key_begin + step * kKeys;
    copy_tile<kKeys, kWidth, kThreads>(stage, keys, a.qkv_stride, at, end, a.head_dim);
    copy_tile<kKeys, kWidth, kThreads>(stage + kKeys * kLine, values, a.qkv_stride, at, end, a.head_dim);
    commit_copies();
  };
  copy_step(0);

  int begin[kM][2];  // of the thread's rows' documents
  float top[kM][2], sum[kM][2], o[kM][kWidth / 8][4];
  clear(o);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      begin[m][h] = begins[warp_row + m * 16 + h * 8 + lane / 4];
      top[m][h] = -INFINITY, sum[m][h] = 0;
    }
  const int warp_first = first + warp_row, warp_last = warp_first + kM * 16 - 1;
  const int begin_first = begins[warp_row], begin_last = begins[warp_row + kM * 16 - 1];
  const LaneOffsets<kWidth> offsets;
  const uint32_t own_rows = shared_address(queries + warp_row * kLine);

  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    const int at = key_begin + step * kKeys;
    if (at > warp_last || at + kKeys <= begin_first) continue;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kKeys * kLine);
    float s[kM][kN][4];
    multiply_rows<kWidth>(s, own_rows, stage, offsets);
    const bool masked = at + kKeys - 1 > warp_first || at < begin_last;
    if (masked) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = at + n * 8 + lane % 4 * 2 + i % 2, query = warp_first + m * 16 + i / 2 * 8 + lane / 4;
            if (key > query || key < begin[m][i / 2]) s[m][n][i] = -INFINITY;
          }
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float highest = top[m][h];
#pragma unroll
        for (int n = 0; n < kN; ++n) highest = fmaxf(highest, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
        const float shift = highest == -INFINITY ? 0.0f : highest * a.scale_log2;  // nothing of the row yet
        const float keep = exp2_fast(top[m][h] * a.scale_log2 - shift);
        top[m][h] = highest;
        float added = 0;
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int i = 2 * h; i < 2 * h + 2; ++i) {
            s[m][n][i] = exp2_fast(fmaf(s[m][n][i], a.scale_log2, -shift));
            added += s[m][n][i];
          }
        sum[m][h] = fmaf(sum[m][h], keep, added);
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) o[m][n][2 * h] *= keep, o[m][n][2 * h + 1] *= keep;
      }
    accumulate<kWidth>(o, s, stage + kKeys * kLine * 2, offsets);
  }

  float factor[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[m][h];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      factor[m][h] = total > 0 ? 1 / total : 0;
      const int query = warp_first + m * 16 + h * 8 + lane / 4;
      if (lane % 4 == 0 && query < a.tokens)
        lse[int64_t{head} * a.tokens + query] = fmaf(top[m][h], a.scale, logf(total));
    }
  store_rows<kWidth, kM>(o, factor, queries + warp_row * kLine, out + int64_t{head} * a.head_dim, a.out_stride,
                         warp_first, a.tokens, a.head_dim);
}

template <int kWidth, int kWarps, int kBlocks>
void start(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a) {
  const unsigned tiles = static_cast<unsigned>((a.tokens + kQueries - 1) / kQueries);
  launch(device,
         {.blocks = tiles * static_cast<unsigned>(a.heads),
          .threads = kWarps * 32,
          .shared_bytes = shared_bytes<kWidth, kWarps>()},
         attention_fwd_mma_kernel<kWidth, kWarps, kBlocks>, out, lse, qkv, a);
}

}  // namespace

void forward_mma(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a) {
  if (a.head_dim <= 64)
    start<64, 4, 2>(device, out, lse, qkv, a);
  else if (a.head_dim <= 96)
    start<96, 4, 2>(device, out, lse, qkv, a);
  else if (a.head_dim <= 128)
    start<128, 4, 2>(device, out, lse, qkv, a);
  else
    start<256, 8, 1>(device, out, lse, qkv, a);
}

}  // namespace mantissa::cuda
