// The own attention's forward pass on BF16 for Hopper: as mma_fwd.cu, 64 queries a warpgroup.
#include "ops/cuda/attention/hopper_boxes.cuh"
#include "ops/cuda/attention/hopper_warpgroup.cuh"
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

// Elements of the two steps' keys and values, which are also the result's way out.
template <int kWidth, int kGroups, int kKeys>
constexpr int staged() {
  return std::max(4 * kKeys * kWidth, kGroups * 64 * (kWidth + kPad));
}
template <int kWidth, int kGroups, int kKeys>
constexpr size_t shared_bytes() {
  return 1024 + (kGroups * 64 * kWidth + staged<kWidth, kGroups, kKeys>()) * sizeof(Bf16) + kGroups * 64 * sizeof(int);
}

template <int kWidth, int kGroups, int kKeys, int kBlocks>
__global__ void __launch_bounds__(kGroups * 128, kBlocks)
    attention_fwd_hopper_kernel(Bf16* out, float* lse, const Bf16* qkv, const AttentionView a,
                                const __grid_constant__ CUtensorMap boxes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kThreads = kGroups * 128, kQueries = kGroups * 64, kTile = kKeys * kWidth, kN = kKeys / 8;
  extern __shared__ char raw[];
  Bf16* const queries = aligned_tiles(raw);
  Bf16* const stages = queries + kQueries * kWidth;  // keys and values of two steps
  int* const begins = reinterpret_cast<int*>(stages + staged<kWidth, kGroups, kKeys>());

  const int head = blockIdx.x % a.heads, kv = head / a.group();
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.heads * kQueries;  // long ones first
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_row = warp / 4 * 64, row = warp * 16 + lane / 4;
  const int end = min(first + kQueries, a.tokens);

  copy_panels<kQueries, kWidth, kThreads>(queries, qkv + int64_t{head} * a.head_dim, a.qkv_stride, first, a.tokens,
                                          a.head_dim);
  commit_copies();
  __shared__ uint64_t full[2];  // of the two steps
  const uint32_t barriers = shared_address(full);
  make_barriers(barriers, 2);
  if (threadIdx.x < kQueries) begins[threadIdx.x] = document_of(a, first + threadIdx.x).begin;
  __syncthreads();
  const int key_begin = begins[0], steps = (end - key_begin + kKeys - 1) / kKeys;
  const auto copy_step = [&](int step) {
    if (threadIdx.x != 0) return;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kTile), barrier = barriers + step % 2 * 8;
    const int at = key_begin + step * kKeys;
    expect_bytes(barrier, kTile * 4);
    load_tile<kKeys, kWidth>(stage, boxes, a.heads + kv, at, barrier);
    load_tile<kKeys, kWidth>(stage + kTile * 2, boxes, a.heads + a.kv_heads + kv, at, barrier);
  };
  copy_step(0);

  const int begin[2] = {begins[row], begins[row + 8]};
  const int group_first = first + group_row, begin_last = begins[group_row + 63];
  const uint32_t own_rows = shared_address(queries) + group_row * 128;
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[kWidth / 8][4] = {};

  for (int step = 0; step < steps; ++step) {
    wait_copies<0>();  // the block's own rows, at first
    hand_to_async();
    __syncthreads();
    if (step + 1 < steps) copy_step(step + 1);
    wait_barrier(barriers + step % 2 * 8, step / 2 % 2);
    const int at = key_begin + step * kKeys;
    const uint32_t stage = shared_address(stages + step % 2 * 2 * kTile);
    float s[kN][4];
    begin_products();
    enqueue_rows<kWidth>(s, own_rows, kQueries * 128, stage, kKeys * 128);
    commit_products();
    wait_products<0>();
    pin(s);
    if (at + kKeys - 1 > group_first || at < begin_last) {
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = at + n * 8 + lane % 4 * 2 + i % 2, query = first + row + i / 2 * 8;
          if (key > query || key < begin[i / 2]) s[n][i] = -INFINITY;
        }
    }
    Fragment p[kN / 2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = top[h];
#pragma unroll
      for (int n = 0; n < kN; ++n) highest = fmaxf(highest, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      const float shift = highest == -INFINITY ? 0.0f : highest * a.scale_log2;  // nothing of the row yet
      const float keep = exp2_fast(top[h] * a.scale_log2 - shift);
      top[h] = highest;
      float added = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float p0 = exp2_fast(fmaf(s[n][2 * h], a.scale_log2, -shift)),
                    p1 = exp2_fast(fmaf(s[n][2 * h + 1], a.scale_log2, -shift));
        added += p0 + p1;
        p[n / 2].x[n % 2 * 2 + h] = pack(p0, p1);
      }
      sum[h] = fmaf(sum[h], keep, added);
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) o[n][2 * h] *= keep, o[n][2 * h + 1] *= keep;
    }
    pin(o);
    begin_products();
    enqueue_sum(o, p, stage + kTile * 2, kKeys * 128);
    commit_products();
    wait_products<0>();
    pin(o);
  }

  float factor[1][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    factor[0][h] = total > 0 ? 1 / total : 0;
    const int query = first + row + h * 8;
    if (lane % 4 == 0 && query < a.tokens) lse[int64_t{head} * a.tokens + query] = fmaf(top[h], a.scale, logf(total));
  }
  __syncthreads();  // the stages are free
  store_rows<kWidth, 1>(reinterpret_cast<const float(&)[1][kWidth / 8][4]>(o), factor,
                        stages + warp * 16 * (kWidth + kPad), out + int64_t{head} * a.head_dim, a.out_stride,
                        first + warp * 16, a.tokens, a.head_dim);
#endif
}

template <int kWidth, int kGroups, int kKeys, int kBlocks>
void start(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a) {
  const unsigned tiles = static_cast<unsigned>((a.tokens + kGroups * 64 - 1) / (kGroups * 64));
  launch(device,
         {.blocks = tiles * static_cast<unsigned>(a.heads),
          .threads = kGroups * 128,
          .shared_bytes = shared_bytes<kWidth, kGroups, kKeys>()},
         attention_fwd_hopper_kernel<kWidth, kGroups, kKeys, kBlocks>, out, lse, qkv, a,
         boxes_of(qkv, a.tokens, a.heads + 2 * a.kv_heads, a.head_dim, kKeys));
}

}  // namespace

void forward_hopper(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, const AttentionView& a) {
  a.head_dim <= 64 ? start<64, 2, 64, 2>(device, out, lse, qkv, a) : start<128, 2, 128, 1>(device, out, lse, qkv, a);
}

}  // namespace mantissa::cuda
