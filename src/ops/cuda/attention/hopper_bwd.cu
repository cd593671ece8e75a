// The own attention's backward pass on BF16 for Hopper: as mma_bwd.cu, 64 keys or queries a warpgroup.
#include "ops/cuda/attention/hopper_boxes.cuh"
#include "ops/cuda/attention/hopper_warpgroup.cuh"
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256, kTile = 128;

template <int kWidth, int kStep>
constexpr size_t shared_bytes() {
  return 1024 + (2 * kTile + 4 * kStep) * kWidth * sizeof(Bf16) + std::max(kTile, 4 * kStep) * sizeof(float);
}

// Through shared memory that the block no longer needs.
template <int kWidth>
__device__ __forceinline__ void store_gradient(const float (&c)[kWidth / 8][4], float factor, Bf16* free, Bf16* to,
                                               const AttentionView& a, int first) {
  const int warp = threadIdx.x / 32;
  const float factors[1][2] = {{factor, factor}};
  store_rows<kWidth, 1>(reinterpret_cast<const float(&)[1][kWidth / 8][4]>(c), factors,
                        free + warp * 16 * (kWidth + kPad), to, a.qkv_stride, first + warp * 16, a.tokens, a.head_dim);
}

// dk, dv of 128 keys; rows of the products are keys.
template <int kWidth, int kStep>
__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_keys_hopper_kernel(Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                                     const float* delta, const AttentionView a,
                                     const __grid_constant__ CUtensorMap qkv_boxes,
                                     const __grid_constant__ CUtensorMap dout_boxes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kSize = kStep * kWidth, kN = kStep / 8;
  extern __shared__ char raw[];
  Bf16 *const keys = aligned_tiles(raw), *const values = keys + kTile * kWidth;
  Bf16* const stages = values + kTile * kWidth;                      // queries and dout of two steps
  float* const rows = reinterpret_cast<float*>(stages + 4 * kSize);  // their lse and delta

  const int kv = blockIdx.x % a.kv_heads,
            first = key_tile<kTile>(a, blockIdx.x / a.kv_heads, gridDim.x / a.kv_heads) * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_row = warp / 4 * 64;
  const int key0 = first + warp * 16 + lane / 4;  // and eight further
  copy_panels<kTile, kWidth, kThreads>(keys, qkv + a.key_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);
  copy_panels<kTile, kWidth, kThreads>(values, qkv + a.value_column(kv), a.qkv_stride, first, a.tokens, a.head_dim);

  const int end[2] = {document_of(a, key0).end, document_of(a, key0 + 8).end};
  const int end_first = document_of(a, first + group_row).end, block_end = document_of(a, first + kTile - 1).end;
  const int steps_a_head = (block_end - first + kStep - 1) / kStep, steps = steps_a_head * a.group();
  __shared__ uint64_t full[2];  // of the two steps
  const uint32_t barriers = shared_address(full);
  make_barriers(barriers, 2);
  __syncthreads();
  const auto copy_step = [&](int step) {
    const int head = kv * a.group() + step / steps_a_head, at = first + step % steps_a_head * kStep;
    if (threadIdx.x == 0) {
      const uint32_t stage = shared_address(stages + step % 2 * 2 * kSize), barrier = barriers + step % 2 * 8;
      expect_bytes(barrier, kSize * 4);
      load_tile<kStep, kWidth>(stage, qkv_boxes, head, at, barrier);
      load_tile<kStep, kWidth>(stage + kSize * 2, dout_boxes, head, at, barrier);
    }
    if (threadIdx.x < 2 * kStep) {
      const int row = at + static_cast<int>(threadIdx.x) % kStep;
      const bool valid = row < a.tokens;
      copy4(shared_address(rows + step % 2 * 2 * kStep + threadIdx.x),
            (threadIdx.x < kStep ? lse : delta) + (valid ? int64_t{head} * a.tokens + row : 0), valid);
    }
    commit_copies();
  };
  copy_step(0);

  const uint32_t own_keys = shared_address(keys) + group_row * 128,
                 own_values = shared_address(values) + group_row * 128;
  float dk[kWidth / 8][4] = {}, dv[kWidth / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();  // lse and delta, at first the keys and values
    hand_to_async();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    wait_barrier(barriers + step % 2 * 8, step / 2 % 2);
    const int at = first + step % steps_a_head * kStep;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kSize), stage_dout = stage + kSize * 2;
    const float* const row_lse = rows + step % 2 * 2 * kStep + lane % 4 * 2;
    float p[kN][4], ds[kN][4];
    begin_products();
    enqueue_rows<kWidth>(p, own_keys, kTile * 128, stage, kStep * 128);
    commit_products();
    enqueue_rows<kWidth>(ds, own_values, kTile * 128, stage_dout, kStep * 128);
    commit_products();
    wait_products<1>();
    pin(p);
    const bool masked = at < first + group_row + 63 || at + kStep > end_first;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 log_sum = *reinterpret_cast<const float2*>(row_lse + n * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[n][i] = exp2_fast(fmaf(p[n][i], a.scale_log2, -kLog2E * (i % 2 ? log_sum.y : log_sum.x)));
        if (masked) {
          const int query = at + n * 8 + lane % 4 * 2 + i % 2;
          if (query < key0 + i / 2 * 8 || query >= end[i / 2]) p[n][i] = 0;
        }
      }
    }
    Fragment left[kN / 2];
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) left[k] = as_rows(p, k);
    pin(dv);
    begin_products();
    enqueue_sum(dv, left, stage_dout, kStep * 128);
    commit_products();
    wait_products<1>();
    pin(ds);
    Fragment right[kN / 2];
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 product = *reinterpret_cast<const float2*>(row_lse + kStep + n * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) ds[n][i] = p[n][i] * (ds[n][i] - (i % 2 ? product.y : product.x));
    }
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) right[k] = as_rows(ds, k);
    pin(dk);
    begin_products();
    enqueue_sum(dk, right, stage, kStep * 128);
    commit_products();
    wait_products<0>();
    pin(dv);
    pin(dk);
  }
  __syncthreads();  // the tiles are free
  store_gradient<kWidth>(dk, a.scale, stages, dqkv + a.key_column(kv), a, first);
  store_gradient<kWidth>(dv, 1, stages, dqkv + a.value_column(kv), a, first);
#endif
}

// dq of 128 queries of a head.
template <int kWidth, int kStep, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    attention_bwd_queries_hopper_kernel(Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                                        const float* delta, const AttentionView a,
                                        const __grid_constant__ CUtensorMap qkv_boxes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kSize = kStep * kWidth, kN = kStep / 8;
  extern __shared__ char raw[];
  Bf16 *const queries = aligned_tiles(raw), *const douts = queries + kTile * kWidth;
  Bf16* const stages = douts + kTile * kWidth;  // keys and values of two steps
  int* const begins = reinterpret_cast<int*>(stages + 4 * kSize);

  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kTile;  // long ones first
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_row = warp / 4 * 64, row = warp * 16 + lane / 4;
  const int end = min(first + kTile, a.tokens);
  copy_panels<kTile, kWidth, kThreads>(queries, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens,
                                       a.head_dim);
  copy_panels<kTile, kWidth, kThreads>(douts, dout + int64_t{head} * a.head_dim, a.out_stride, first, a.tokens,
                                       a.head_dim);
  commit_copies();
  __shared__ uint64_t full[2];  // of the two steps
  const uint32_t barriers = shared_address(full);
  make_barriers(barriers, 2);
  if (threadIdx.x < kTile) begins[threadIdx.x] = document_of(a, first + threadIdx.x).begin;
  __syncthreads();
  const int key_begin = begins[0], steps = (end - key_begin + kStep - 1) / kStep;
  const auto copy_step = [&](int step) {
    if (threadIdx.x != 0) return;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kSize), barrier = barriers + step % 2 * 8;
    const int at = key_begin + step * kStep;
    expect_bytes(barrier, kSize * 4);
    load_tile<kStep, kWidth>(stage, qkv_boxes, a.heads + kv, at, barrier);
    load_tile<kStep, kWidth>(stage + kSize * 2, qkv_boxes, a.heads + a.kv_heads + kv, at, barrier);
  };
  copy_step(0);

  const int begin_last = begins[group_row + 63];
  int begin[2];
  float shift[2], product[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool valid = first + row + h * 8 < a.tokens;
    const int64_t at = int64_t{head} * a.tokens + first + row + h * 8;
    begin[h] = begins[row + h * 8], shift[h] = valid ? lse[at] * kLog2E : 0, product[h] = valid ? delta[at] : 0;
  }
  const uint32_t own_queries = shared_address(queries) + group_row * 128,
                 own_douts = shared_address(douts) + group_row * 128;
  float dq[kWidth / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();  // the block's own rows, at first
    hand_to_async();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    wait_barrier(barriers + step % 2 * 8, step / 2 % 2);
    const int at = key_begin + step * kStep;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kSize);
    float p[kN][4], ds[kN][4];
    begin_products();
    enqueue_rows<kWidth>(p, own_queries, kTile * 128, stage, kStep * 128);
    commit_products();
    enqueue_rows<kWidth>(ds, own_douts, kTile * 128, stage + kSize * 2, kStep * 128);
    commit_products();
    wait_products<1>();
    pin(p);
    const bool masked = at + kStep - 1 > first + group_row || at < begin_last;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[n][i] = exp2_fast(fmaf(p[n][i], a.scale_log2, -shift[i / 2]));
        if (masked) {
          const int key = at + n * 8 + lane % 4 * 2 + i % 2;
          if (key > first + row + i / 2 * 8 || key < begin[i / 2]) p[n][i] = 0;
        }
      }
    wait_products<0>();
    pin(ds);
    Fragment left[kN / 2];
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) ds[n][i] = p[n][i] * (ds[n][i] - product[i / 2]);
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) left[k] = as_rows(ds, k);
    pin(dq);
    begin_products();
    enqueue_sum(dq, left, stage, kStep * 128);
    commit_products();
    wait_products<0>();
    pin(dq);
  }
  __syncthreads();  // the tiles are free
  store_gradient<kWidth>(dq, a.scale, stages, dqkv + int64_t{head} * a.head_dim, a, first);
#endif
}

template <int kWidth, int kKeyStep, int kQueryStep, int kQueryBlocks>
void start(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse, const float* delta,
           const AttentionView& a) {
  const unsigned tiles = static_cast<unsigned>((a.tokens + kTile - 1) / kTile);
  const int64_t all_heads = a.heads + 2 * a.kv_heads;
  const CUtensorMap query_boxes = boxes_of(qkv, a.tokens, all_heads, a.head_dim, kKeyStep),
                    key_boxes = boxes_of(qkv, a.tokens, all_heads, a.head_dim, kQueryStep),
                    dout_boxes = boxes_of(dout, a.tokens, a.heads, a.head_dim, kKeyStep);
  launch(device,
         {.blocks = tiles * static_cast<unsigned>(a.kv_heads),
          .threads = kThreads,
          .shared_bytes = shared_bytes<kWidth, kKeyStep>()},
         attention_bwd_keys_hopper_kernel<kWidth, kKeyStep>, dqkv, dout, qkv, lse, delta, a, query_boxes, dout_boxes);
  launch(device,
         {.blocks = tiles * static_cast<unsigned>(a.heads),
          .threads = kThreads,
          .shared_bytes = shared_bytes<kWidth, kQueryStep>()},
         attention_bwd_queries_hopper_kernel<kWidth, kQueryStep, kQueryBlocks>, dqkv, dout, qkv, lse, delta, a,
         key_boxes);
}

}  // namespace

void backward_hopper(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const float* lse,
                     const float* delta, const AttentionView& a) {
  a.head_dim <= 64 ? start<64, 64, 64, 2>(device, dqkv, dout, qkv, lse, delta, a)
                   : start<128, 64, 64, 1>(device, dqkv, dout, qkv, lse, delta, a);
}

}  // namespace mantissa::cuda
