// The own attention's backward pass on BF16 for Hopper where sums need no fixed order: one kernel makes all three
// gradients from five products. A block takes 128 keys of a document at a time, with all the heads that share them, the
// longest documents first, and adds its parts of dq to FP32 sums in global memory. Two warpgroups multiply, 64 keys
// each, a thread of a third loads.
#include "ops/cuda/attention/hopper_boxes.cuh"
#include "ops/cuda/attention/hopper_fused.cuh"
#include "ops/cuda/attention/hopper_warpgroup.cuh"
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/attention/scratch.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kWidth = kFusedWidth, kStep = kFusedStep, kSize = kFusedSize, kStages = 3, kN = kStep / 8;
constexpr int kConsumers = 256, kThreads = kConsumers + 128;
constexpr int kStepBytes = 2 * kSize * 2 + 2 * kStep * 4;  // queries, dout, lse and delta
constexpr int kScores = kTile * kStep;                     // elements of a step's dS

// 128 keys of a kv head, those from `end` on apart, and the step that begins with them. end < 0: there are no more.
struct Piece {
  int first, end, step, kv;
  __device__ int steps_a_head() const { return (end - first + kStep - 1) / kStep; }
};

// Shared memory. Barriers are addresses; the first two are those of stage 0.
struct Shared {
  Bf16 *keys, *values, *stages, *scores, *ways;  // stages: queries, then dout; scores: dS of two steps
  float* rows;                                   // of each stage: lse and delta
  Piece* piece;
  uint32_t full, empty, keys_full, values_full, piece_done;
};
constexpr size_t kSharedBytes = 1024 +
                                (2 * kTile * kWidth + kStages * 2 * kSize + 2 * kScores + 8 * kWayOut) * sizeof(Bf16) +
                                kStages * 2 * kStep * sizeof(float);

// Adds sums in shared memory to global memory, in the background.
__device__ __forceinline__ void add_line(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until what this thread gave to add_line has been read.
__device__ __forceinline__ void wait_lines_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void store_matrices(uint32_t to, const Fragment& f) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(f.x[0]), "r"(f.x[1]),
               "r"(f.x[2]), "r"(f.x[3])
               : "memory");
}

// One thread: takes pieces from the list and loads them.
__device__ __forceinline__ void load_pieces(const Shared& shared, const FusedScratch& s, const AttentionView& a,
                                            const CUtensorMap& qkv_boxes, const CUtensorMap& dout_boxes) {
  const int pieces = s.list.counts[0] * a.kv_heads;
  int stage = 0, turn = 0;
  for (int n = 0, next = static_cast<int>(blockIdx.x);; ++n) {
    if (next >= pieces) {
      wait_barrier(shared.piece_done, n % 2 ^ 1);
      shared.piece->end = -1;
      return arrive(shared.keys_full);
    }
    // A tile's heads side by side: faster than a head's tiles.
    const TokenTile tile = s.list.tiles[next / a.kv_heads];
    const Piece t = {tile.first, tile.end, first_step(tile.document, tile.begin) + (tile.first - tile.begin) / kStep,
                     next % a.kv_heads};
    next = static_cast<int>(gridDim.x) + atomicAdd(s.list.counts + 1, 1);
    const int steps_a_head = t.steps_a_head();
    for (int h = 0; h < a.group(); ++h) {
      const int head = t.kv * a.group() + h;
      const float* rows = s.rows + (int64_t{head} * s.steps + t.step) * 2 * kStep;
      for (int step = 0; step < steps_a_head; ++step, rows += 2 * kStep) {
        const uint32_t queries = shared_address(shared.stages + stage * 2 * kSize), full = shared.full + stage * 8;
        wait_barrier(shared.empty + stage * 8, turn ^ 1);
        expect_bytes(full, kStepBytes);
        load_tile<kStep, kWidth>(queries, qkv_boxes, head, t.first + step * kStep, full);
        load_tile<kStep, kWidth>(queries + kSize * 2, dout_boxes, head, t.first + step * kStep, full);
        copy_bulk(shared_address(shared.rows + stage * 2 * kStep), rows, 2 * kStep * 4, full);
        if (++stage == kStages) stage = 0, turn ^= 1;
        if (h > 0 || step > 0) continue;
        // Keys and values, once those of the piece before are not needed any more.
        wait_barrier(shared.piece_done, n % 2 ^ 1);
        *shared.piece = t;
        const uint32_t to[2] = {shared_address(shared.keys), shared_address(shared.values)},
                       barriers[2] = {shared.keys_full, shared.values_full};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          expect_bytes(barriers[i], kTile * kWidth * 2);
#pragma unroll
          for (int box = 0; box < 4; ++box)
            load_box(to[i] + box / 2 * (kTile * 128) + box % 2 * (kStep * 128), qkv_boxes, box / 2 * 64,
                     a.heads + i * a.kv_heads + t.kv, t.first + box % 2 * kStep, barriers[i]);
        }
      }
    }
  }
}

// The two warpgroups: rows of the products are keys, but for dq, of which each makes half of the columns.
class Products {
 public:
  __device__ __forceinline__ Products(const Shared& shared, const FusedScratch& s, const AttentionView& a)
      : shared_(shared), s_(s), a_(a), sums_way_(reinterpret_cast<float*>(shared.ways + half() * 4 * kWayOut)) {}

  // All pieces that load_pieces takes.
  __device__ __forceinline__ void run(Bf16* dqkv) {
    for (int n = 0;; ++n) {
      wait_barrier(shared_.keys_full, n % 2);
      piece_ = *shared_.piece;
      if (piece_.end < 0) return;
      wait_barrier(shared_.values_full, n % 2);
      clear();
      const int steps = piece_.steps_a_head();
      sums_ = s_.dq + (int64_t{piece_.kv * a_.group()} * s_.steps + piece_.step) * kSize + half() * (kSize / 2);
      for (int h = 0; h < a_.group(); ++h, sums_ += int64_t{s_.steps - steps} * kSize) {
        at_ = piece_.first;
        wait_barrier(shared_.full + stage_ * 8, turn_);
        if (steps == 1) {
          take_step<true, true>();
          continue;
        }
        take_step<true, false>();
        while (at_ + kStep < piece_.end) take_step<false, false>();
        take_step<false, true>();
      }
      if (lane() == 0) arrive(shared_.piece_done);
      store(dqkv);
    }
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int warp() { return threadIdx.x / 32; }
  static __device__ int half() { return threadIdx.x / 128; }  // the warpgroup

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) dk_[n][i] = dv_[n][i] = 0;
  }

  // P of the step from the scores in p_.
  __device__ __forceinline__ void to_probabilities(const float* lse) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const float2 shift = *reinterpret_cast<const float2*>(lse + n * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) p_[n][i] = exp2_fast(fmaf(p_[n][i], a_.scale_log2, -(i % 2 ? shift.y : shift.x)));
    }
    if (at_ >= piece_.first + half() * 64 + 63 && at_ + kStep <= piece_.end) return;
    const int key = piece_.first + warp() * 16 + lane() / 4;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = at_ + n * 8 + lane() % 4 * 2 + i % 2;
        if (query < key + i / 2 * 8 || query >= piece_.end) p_[n][i] = 0;
      }
  }

  // The step at at_. kFirst: of its head. kLast: of its head; else the scores of the next come after it.
  template <bool kFirst, bool kLast>
  __device__ __forceinline__ void take_step() {
    // Addresses that the compiler does not keep from step to step, with all that follows from them.
    uint32_t keys = shared_address(shared_.keys), values = shared_address(shared_.values),
             scores = shared_address(shared_.scores + buffer_ * kScores);
    asm volatile("" : "+r"(keys), "+r"(values), "+r"(scores));
    const uint32_t own_keys = keys + half() * (64 * 128), queries = shared_address(shared_.stages + stage_ * 2 * kSize),
                   douts = queries + kSize * 2;
    // The first 64 queries see none of the last 64 keys.
    if (!kFirst || half() == 0) {
      const float* const rows = shared_.rows + stage_ * 2 * kStep + lane() % 4 * 2;
      float ds[kN][4];
      begin_products();
      if constexpr (kFirst) {
        enqueue_rows<kWidth>(p_, own_keys, kTile * 128, queries, kStep * 128);
        commit_products();
      }
      enqueue_rows<kWidth>(ds, values + half() * (64 * 128), kTile * 128, douts, kStep * 128);
      commit_products();
      if constexpr (kFirst) {
        wait_products<1>();
        pin(p_);
      }
      to_probabilities(rows);
      Fragment left[kN / 2], right[kN / 2];
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) left[k] = as_rows(p_, k);
      pin(dv_);
      begin_products();
      enqueue_sum(dv_, left, douts, kStep * 128);
      commit_products();
      wait_products<1>();
      pin(ds);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float2 delta = *reinterpret_cast<const float2*>(rows + kStep + n * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) ds[n][i] = p_[n][i] * (ds[n][i] - (i % 2 ? delta.y : delta.x));
      }
#pragma unroll
      for (int k = 0; k < kN / 2; ++k) {
        right[k] = as_rows(ds, k);
        store_matrices(scores + (warp() * 16 + lane() % 16) * 128 + ((2 * k + lane() / 16) ^ (lane() % 8)) * 16,
                       right[k]);
      }
      hand_to_async();
      pin(dk_);
      begin_products();
      enqueue_sum(dk_, right, queries, kStep * 128);
      commit_products();
      if constexpr (kFirst) {
        wait_products<0>();
        pin(dv_);
        pin(dk_);
      }
    }
    if (threadIdx.x % 128 == 0) wait_lines_read();
    meet(1, kConsumers);  // dS of both warpgroups is there, and the way out of dq is free
    float dq[8][4];
    begin_products();
#pragma unroll
    for (int k = 0; k < (kFirst ? 64 : kTile) / 16; ++k) {
      const uint64_t left = describe(scores + k * 16 * 128, 16),
                     right = describe(keys + half() * (kTile * 128) + k * 16 * 128, kTile * 128);
      if (k == 0)
        first_product<true, true>(dq, left, right);
      else
        product<true, true>(dq, left, right);
    }
    commit_products();
    wait_products<1>();
    pin(dv_);
    pin(dk_);
    const uint32_t done = shared_.empty + stage_ * 8;
    buffer_ ^= 1;
    if (++stage_ == kStages) stage_ = 0, turn_ ^= 1;
    if constexpr (kLast) {
      wait_products<0>();
    } else {
      wait_barrier(shared_.full + stage_ * 8, turn_);
      begin_products();
      enqueue_rows<kWidth>(p_, own_keys, kTile * 128, shared_address(shared_.stages + stage_ * 2 * kSize), kStep * 128);
      commit_products();
      wait_products<1>();
    }
    pin(dq);
    if (lane() == 0) arrive(done);
#pragma unroll
    for (int n = 0; n < 8; ++n)
      *reinterpret_cast<float4*>(sums_way_ + n * 512 + threadIdx.x % 128 * 4) =
          make_float4(dq[n][0], dq[n][1], dq[n][2], dq[n][3]);
    hand_to_async();
    meet(2 + half(), 128);
    if (threadIdx.x % 128 == 0) add_line(sums_, shared_address(sums_way_), kSize / 2 * 4);
    if constexpr (!kLast) {
      wait_products<0>();
      pin(p_);
    }
    sums_ += kSize;
    at_ += kStep;
  }

  // dk and dv, by the way that dq took.
  __device__ __forceinline__ void store(Bf16* dqkv) {
    if (threadIdx.x % 128 == 0) wait_lines_read();
    meet(2 + half(), 128);
    const float scale[2] = {a_.scale, a_.scale}, one[2] = {1, 1};
    Bf16* const way = shared_.ways + warp() * kWayOut;
    const int first = piece_.first + warp() * 16;
    store_way_out(dk_, scale, way, dqkv + a_.key_column(piece_.kv), a_.qkv_stride, first, piece_.end, a_.head_dim);
    store_way_out(dv_, one, way, dqkv + a_.value_column(piece_.kv), a_.qkv_stride, first, piece_.end, a_.head_dim);
  }

  const Shared& shared_;
  const FusedScratch& s_;
  const AttentionView& a_;
  float* sums_way_;  // of the warpgroup's half of dq
  float* sums_ = nullptr;
  int stage_ = 0, turn_ = 0, buffer_ = 0, at_ = 0;
  Piece piece_;
  float dk_[kWidth / 8][4], dv_[kWidth / 8][4], p_[kN][4];
};

__global__ void __launch_bounds__(kThreads, 1)
    attention_bwd_fused_hopper_kernel(Bf16* dqkv, const FusedScratch s, const AttentionView a,
                                      const __grid_constant__ CUtensorMap qkv_boxes,
                                      const __grid_constant__ CUtensorMap dout_boxes) {
  if constexpr (kHasWarpgroups) {
    extern __shared__ char raw[];
    __shared__ uint64_t barriers[2 * kStages + 3];
    __shared__ Piece piece;
    Shared shared;
    shared.keys = aligned_tiles(raw);
    shared.values = shared.keys + kTile * kWidth;
    shared.stages = shared.values + kTile * kWidth;
    shared.scores = shared.stages + kStages * 2 * kSize;
    shared.ways = shared.scores + 2 * kScores;
    shared.rows = reinterpret_cast<float*>(shared.ways + 8 * kWayOut);
    shared.piece = &piece;
    shared.full = shared_address(barriers);
    shared.empty = shared.full + kStages * 8;
    shared.keys_full = shared.empty + kStages * 8;
    shared.values_full = shared.keys_full + 8;
    shared.piece_done = shared.values_full + 8;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) make_barrier(shared.full + i * 8, 1), make_barrier(shared.empty + i * 8, 8);
      make_barrier(shared.keys_full, 1), make_barrier(shared.values_full, 1), make_barrier(shared.piece_done, 8);
      publish_barriers();
    }
    __syncthreads();
    wait_for_last();  // rows and the list
    if (threadIdx.x >= kConsumers) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (threadIdx.x == kConsumers) load_pieces(shared, s, a, qkv_boxes, dout_boxes);
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
      Products(shared, s, a).run(dqkv);
    }
  }
}

}  // namespace

void backward_fused(CudaDevice& device, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const Bf16* out,
                    const float* lse, void* scratch, const AttentionView& a) {
  FusedScratch s{.steps = static_cast<int>(fused_steps(a.tokens, a.segments))};
  s.dq = static_cast<float*>(scratch);
  s.rows = s.dq + int64_t{a.heads} * s.steps * kSize;
  s.list = tile_list_at(s.rows + int64_t{a.heads} * s.steps * 2 * kStep, a);
  prepare_fused(device, s, dout, out, lse, a);
  launch(device,
         {.blocks = static_cast<unsigned>(device.multiprocessors()),
          .threads = kThreads,
          .shared_bytes = kSharedBytes,
          .follows = true},
         attention_bwd_fused_hopper_kernel, dqkv, s, a,
         boxes_of(qkv, a.tokens, a.heads + 2 * a.kv_heads, a.head_dim, kStep),
         boxes_of(dout, a.tokens, a.heads, a.head_dim, kStep));
  finish_fused(device, dqkv, s, a);
}

}  // namespace mantissa::cuda
