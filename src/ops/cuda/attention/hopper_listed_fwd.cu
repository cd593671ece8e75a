// The own attention's forward pass on BF16 for Hopper, head_dims above 64: a block takes 128 queries of a document and
// head at a time, the longest documents first. Two warpgroups multiply, 64 queries each, a thread of a third loads.
#include "ops/cuda/attention/hopper_boxes.cuh"
#include "ops/cuda/attention/hopper_tiles.cuh"
#include "ops/cuda/attention/hopper_warpgroup.cuh"
#include "ops/cuda/attention/passes.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kWidth = 128, kSlots = 4, kN = kTile / 8;
constexpr int kConsumers = 256, kThreads = kConsumers + 128, kListThreads = 1024;
constexpr int kSize = kTile * kWidth;  // elements of a tile

// 128 queries of a head and their document. end < 0: there are no more.
struct Piece {
  int first, begin, end, head;
};

// Shared memory. Barriers are addresses of the first of each kind.
struct Shared {
  Bf16 *queries, *ring, *ways;  // queries of two pieces; keys and values in the order of their use
  Piece* pieces;                // two
  uint32_t full, empty, queries_full, queries_empty;
};
constexpr size_t kSharedBytes = 1024 + ((2 + kSlots) * kSize + 8 * kWayOut) * sizeof(Bf16);

__global__ void __launch_bounds__(kListThreads)
    attention_list_tiles_kernel(const TileList list, const AttentionView a) {
  list_tiles<true>(list, a);
}

// One thread: takes pieces from the list and loads them.
__device__ __forceinline__ void load_pieces(const Shared& shared, const TileList& list, const AttentionView& a,
                                            const CUtensorMap& boxes) {
  const int pieces = list.counts[0] * a.heads;
  int slot = 0, turn = 0;
  const auto load = [&](int head, int token) {
    const uint32_t full = shared.full + slot * 8;
    wait_barrier(shared.empty + slot * 8, turn ^ 1);
    expect_bytes(full, kSize * 2);
    load_tile<kTile, kWidth>(shared_address(shared.ring + slot * kSize), boxes, head, token, full);
    if (++slot == kSlots) slot = 0, turn ^= 1;
  };
  for (int n = 0, next = static_cast<int>(blockIdx.x);; ++n) {
    const int place = n % 2;
    const uint32_t full = shared.queries_full + place * 8;
    wait_barrier(shared.queries_empty + place * 8, n / 2 % 2 ^ 1);
    if (next >= pieces) {
      shared.pieces[place].end = -1;
      return arrive(full);
    }
    // A tile's heads side by side: faster than a head's tiles.
    const TokenTile tile = list.tiles[next / a.heads];
    const Piece t = {tile.first, tile.begin, tile.end, next % a.heads};
    next = static_cast<int>(gridDim.x) + atomicAdd(list.counts + 1, 1);
    shared.pieces[place] = t;
    expect_bytes(full, kSize * 2);
    load_tile<kTile, kWidth>(shared_address(shared.queries + place * kSize), boxes, t.head, t.first, full);
    // Backwards from the queries' own keys, each step's values behind the next step's keys.
    const int key_head = a.heads + t.head / a.group(), value_head = key_head + a.kv_heads;
    load(key_head, t.first);
    for (int at = t.first; at > t.begin; at -= kTile) load(key_head, at - kTile), load(value_head, at);
    load(value_head, t.begin);
  }
}

// The two warpgroups.
class Products {
 public:
  __device__ __forceinline__ Products(const Shared& shared, const AttentionView& a) : shared_(shared), a_(a) {}

  // All pieces that load_pieces takes.
  __device__ __forceinline__ void run(Bf16* out, float* lse) {
    for (int n = 0;; ++n) {
      const int place = n % 2;
      wait_barrier(shared_.queries_full + place * 8, n / 2 % 2);
      const Piece t = shared_.pieces[place];
      if (t.end < 0) return;
      const uint32_t rows = shared_address(shared_.queries + place * kSize) + warp() / 4 * (64 * 128);
      begin();
      score_own_keys(rows);
      for (int at = t.first; at > t.begin; at -= kTile) take_step(rows);
      if (lane() == 0) arrive(shared_.queries_empty + place * 8);
      add_last_values();
      store(out, lse, t);
    }
  }

 private:
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int warp() { return threadIdx.x / 32; }

  // The next tile of the ring, and the barrier that says it is not needed any more.
  struct Slot {
    uint32_t tile, done;
  };
  __device__ __forceinline__ Slot next_slot() {
    const Slot slot = {shared_address(shared_.ring + slot_ * kSize), shared_.empty + slot_ * 8};
    wait_barrier(shared_.full + slot_ * 8, turn_);
    if (++slot_ == kSlots) slot_ = 0, turn_ ^= 1;
    return slot;
  }

  __device__ __forceinline__ void begin() {
    top_[0] = top_[1] = -INFINITY, sum_[0] = sum_[1] = 0;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] = 0;
  }

  // The scores s_ to p_ = exp(s_ - top_), their sums added; `keep` is what stays of the sums before.
  __device__ __forceinline__ void softmax(float (&keep)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = top_[h];
#pragma unroll
      for (int n = 0; n < kN; ++n) highest = fmaxf(highest, fmaxf(s_[n][2 * h], s_[n][2 * h + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      const float shift = highest * a_.scale_log2;
      keep[h] = exp2_fast(fmaf(top_[h], a_.scale_log2, -shift));
      top_[h] = highest;
      float added = 0;
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        s_[n][2 * h] = exp2_fast(fmaf(s_[n][2 * h], a_.scale_log2, -shift));
        s_[n][2 * h + 1] = exp2_fast(fmaf(s_[n][2 * h + 1], a_.scale_log2, -shift));
        added += s_[n][2 * h] + s_[n][2 * h + 1];
      }
      sum_[h] = fmaf(sum_[h], keep[h], added);
    }
  }
  __device__ __forceinline__ void pack_probabilities() {
#pragma unroll
    for (int k = 0; k < kN / 2; ++k) p_[k] = as_rows(s_, k);
  }

  __device__ __forceinline__ void score_own_keys(uint32_t rows) {
    const Slot keys = next_slot();
    begin_products();
    enqueue_rows<kWidth>(s_, rows, kTile * 128, keys.tile, kTile * 128);
    commit_products();
    wait_products<0>();
    pin(s_);
    if (lane() == 0) arrive(keys.done);
    const int row = warp() * 16 + lane() / 4;
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (n * 8 + lane() % 4 * 2 + i % 2 > row + i / 2 * 8) s_[n][i] = -INFINITY;
    float keep[2];
    softmax(keep);
    pack_probabilities();
  }

  // The scores of 128 earlier keys, while the values of the step before are added.
  __device__ __forceinline__ void take_step(uint32_t rows) {
    const Slot keys = next_slot();
    begin_products();
    enqueue_rows<kWidth>(s_, rows, kTile * 128, keys.tile, kTile * 128);
    commit_products();
    const Slot values = next_slot();
    pin(o_);
    begin_products();
    enqueue_sum(o_, p_, values.tile, kTile * 128);
    commit_products();
    wait_products<1>();
    pin(s_);
    if (lane() == 0) arrive(keys.done);
    float keep[2];
    softmax(keep);
    wait_products<0>();
    pin(o_);
    if (lane() == 0) arrive(values.done);
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] *= keep[i / 2];
    pack_probabilities();
  }

  __device__ __forceinline__ void add_last_values() {
    const Slot values = next_slot();
    pin(o_);
    begin_products();
    enqueue_sum(o_, p_, values.tile, kTile * 128);
    commit_products();
    wait_products<0>();
    pin(o_);
    if (lane() == 0) arrive(values.done);
  }

  __device__ __forceinline__ void store(Bf16* out, float* lse, const Piece& t) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum_[h];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      factor[h] = 1 / total;
      const int query = t.first + warp() * 16 + lane() / 4 + h * 8;
      if (lane() % 4 == 0 && query < t.end)
        lse[int64_t{t.head} * a_.tokens + query] = fmaf(top_[h], a_.scale, logf(total));
    }
    store_way_out(o_, factor, shared_.ways + warp() * kWayOut, out + int64_t{t.head} * a_.head_dim, a_.out_stride,
                  t.first + warp() * 16, t.end, a_.head_dim);
  }

  const Shared& shared_;
  const AttentionView& a_;
  int slot_ = 0, turn_ = 0;
  float top_[2], sum_[2], o_[kWidth / 8][4], s_[kN][4];
  Fragment p_[kN / 2];
};

__global__ void __launch_bounds__(kThreads, 1)
    attention_fwd_listed_hopper_kernel(Bf16* out, float* lse, const TileList list, const AttentionView a,
                                       const __grid_constant__ CUtensorMap boxes) {
  if constexpr (kHasWarpgroups) {
    extern __shared__ char raw[];
    __shared__ uint64_t barriers[2 * kSlots + 4];
    __shared__ Piece pieces[2];
    Shared shared;
    shared.queries = aligned_tiles(raw);
    shared.ring = shared.queries + 2 * kSize;
    shared.ways = shared.ring + kSlots * kSize;
    shared.pieces = pieces;
    shared.full = shared_address(barriers);
    shared.empty = shared.full + kSlots * 8;
    shared.queries_full = shared.empty + kSlots * 8;
    shared.queries_empty = shared.queries_full + 16;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kSlots; ++i) make_barrier(shared.full + i * 8, 1), make_barrier(shared.empty + i * 8, 8);
      for (int i = 0; i < 2; ++i)
        make_barrier(shared.queries_full + i * 8, 1), make_barrier(shared.queries_empty + i * 8, 8);
      publish_barriers();
    }
    __syncthreads();
    wait_for_last();  // the list
    if (threadIdx.x >= kConsumers) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
      if (threadIdx.x == kConsumers) load_pieces(shared, list, a, boxes);
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      Products(shared, a).run(out, lse);
    }
  }
}

}  // namespace

void forward_listed(CudaDevice& device, Bf16* out, float* lse, const Bf16* qkv, void* scratch, const AttentionView& a) {
  const TileList list = tile_list_at(scratch, a);
  launch(device, {.blocks = 1, .threads = kListThreads}, attention_list_tiles_kernel, list, a);
  launch(device,
         {.blocks = static_cast<unsigned>(device.multiprocessors()),
          .threads = kThreads,
          .shared_bytes = kSharedBytes,
          .follows = true},
         attention_fwd_listed_hopper_kernel, out, lse, list, a,
         boxes_of(qkv, a.tokens, a.heads + 2 * a.kv_heads, a.head_dim, kTile));
}

}  // namespace mantissa::cuda
