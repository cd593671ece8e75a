#include "ops/cuda/attention/hopper_fused.cuh"

#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256, kLanes = kFusedWidth / kWide, kRows = kThreads / kLanes;  // of a pass over a step's rows

struct Span {
  int begin, end;
};
// The tokens of a step, none if no document has it; all threads of the block call it.
__device__ Span span_of(const AttentionView& a, int step) {
  __shared__ Span found;
  if (threadIdx.x == 0) found = {0, 0};
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < a.segments; d += kThreads) {
    const int begin = __ldg(a.offsets + d), end = __ldg(a.offsets + d + 1);
    const int at = begin + (step - first_step(d, begin)) * kFusedStep;
    if (at >= begin && at < end) found = {at, min(at + kFusedStep, end)};
  }
  __syncthreads();
  return found;
}

// A block each step and head, behind one that lists the tiles.
__global__ void __launch_bounds__(kThreads)
    attention_bwd_fused_prepare_kernel(const FusedScratch s, const Bf16* dout, const Bf16* out, const float* lse,
                                       const AttentionView a) {
  constexpr int kPasses = kFusedStep / kRows;
  if (blockIdx.x == 0) return list_tiles<false>(s.list, a);
  const int head = static_cast<int>(blockIdx.x - 1) % a.heads, step = static_cast<int>(blockIdx.x - 1) / a.heads;
  const Span span = span_of(a, step);
  if (span.begin == span.end) return;
  const int lane = threadIdx.x % kLanes, first = threadIdx.x / kLanes, column = lane * kWide;
  Wide x[kPasses], y[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int token = span.begin + i * kRows + first;
    const bool valid = token < span.end && column < a.head_dim;
    const int64_t at = token * a.out_stride + int64_t{head} * a.head_dim + column;
    x[i] = valid ? widen(load_packed(dout + at)) : Wide{};
    y[i] = valid ? widen(load_packed(out + at)) : Wide{};
  }
  const int64_t place = int64_t{head} * s.steps + step;
  float4* const dq = reinterpret_cast<float4*>(s.dq + place * kFusedSize);
#pragma unroll
  for (int i = 0; i < kFusedSize / 4 / kThreads; ++i) dq[i * kThreads + threadIdx.x] = {};
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) sum = fmaf(x[i].x[k], y[i].x[k], sum);
#pragma unroll
    for (int across = kLanes / 2; across > 0; across /= 2) sum += __shfl_xor_sync(~0u, sum, across);
    if (lane != 0) continue;
    const int row = i * kRows + first, token = span.begin + row;
    float* const to = s.rows + place * 2 * kFusedStep + row;
    to[0] = token < span.end ? kLog2E * lse[int64_t{head} * a.tokens + token] : 0;
    to[kFusedStep] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    attention_bwd_fused_finish_kernel(Bf16* dqkv, const FusedScratch s, const AttentionView a) {
  __shared__ __align__(16) Bf16 tiles[kThreads / 32][16 * (64 + kPad)];
  const int head = static_cast<int>(blockIdx.x) % a.heads, step = static_cast<int>(blockIdx.x) / a.heads;
  wait_for_last();
  const Span span = span_of(a, step);
  if (span.begin == span.end) return;
  const int half = threadIdx.x / 128, warp = threadIdx.x / 32;
  const float4* const dq = reinterpret_cast<const float4*>(s.dq + (int64_t{head} * s.steps + step) * kFusedSize) +
                           half * (kFusedSize / 8) + threadIdx.x % 128;
  float c[1][8][4];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float4 v = dq[n * 128];
    c[0][n][0] = v.x, c[0][n][1] = v.y, c[0][n][2] = v.z, c[0][n][3] = v.w;
  }
  const float factor[1][2] = {{a.scale, a.scale}};
  store_rows<64, 1>(c, factor, tiles[warp], dqkv + int64_t{head} * a.head_dim + half * 64, a.qkv_stride,
                    span.begin + warp % 4 * 16, span.end, a.head_dim - half * 64);
}

}  // namespace

void prepare_fused(CudaDevice& device, const FusedScratch& s, const Bf16* dout, const Bf16* out, const float* lse,
                   const AttentionView& a) {
  const unsigned blocks = static_cast<unsigned>(s.steps * a.heads);
  launch(device, {.blocks = blocks + 1, .threads = kThreads}, attention_bwd_fused_prepare_kernel, s, dout, out, lse, a);
}

void finish_fused(CudaDevice& device, Bf16* dqkv, const FusedScratch& s, const AttentionView& a) {
  const unsigned blocks = static_cast<unsigned>(s.steps * a.heads);
  launch(device, {.blocks = blocks, .threads = kThreads, .follows = true}, attention_bwd_fused_finish_kernel, dqkv, s,
         a);
}

}  // namespace mantissa::cuda
