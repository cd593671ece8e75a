// Embedding: a gather; its gradient as a stable radix sort of the tokens by id, then sums of runs of one id. A run is
// cut at every chunk of sorted tokens, so a frequent id costs no more than rare ones; pieces are added in token order.
#include "ops/cuda/embedding.h"

#include <bit>
#include <climits>
#include <type_traits>

#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/embedding.h"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGathers = 4;  // in flight a thread
constexpr unsigned kAll = 0xffffffffu;

// Eight elements as they lie in memory; kAligned: all there, at an aligned address, else the first `count`. Nothing
// waits for a load before its value is widened.
template <bool kAligned, class T>
__device__ __forceinline__ Packed<T> grab(const T* p, int count) {
  if constexpr (kAligned)
    return load_packed(p);
  else
    return pack<T>(load_wide(p, count));
}

template <bool kAligned, class Y, class W>
__global__ void __launch_bounds__(kThreads)
    embedding_gather_kernel(Y* y, const int32_t* ids, const W* table, const int32_t* positions, const W* position_table,
                            int64_t tokens, int64_t cols) {
  const int64_t groups = ceil_div(cols, int64_t{kWide}), items = tokens * groups;
  const int64_t first = (int64_t{blockIdx.x} * kGathers) * kThreads + threadIdx.x;
  Packed<W> v[kGathers], p[kGathers];
  int64_t to[kGathers];
  int width[kGathers];
#pragma unroll
  for (int j = 0; j < kGathers; ++j) {
    const int64_t item = min(first + j * kThreads, items - 1);
    const int64_t token = item / groups, col = item % groups * kWide;
    to[j] = token * cols + col;
    width[j] = static_cast<int>(min(cols - col, int64_t{kWide}));
    v[j] = grab<kAligned>(table + ids[token] * cols + col, width[j]);
    if (positions) p[j] = grab<kAligned>(position_table + positions[token] * cols + col, width[j]);
  }
#pragma unroll
  for (int j = 0; j < kGathers; ++j) {
    if (first + j * kThreads >= items) continue;
    Wide sum = widen(v[j]);
    if (positions) {
      const Wide more = widen(p[j]);
#pragma unroll
      for (int k = 0; k < kWide; ++k) sum.x[k] += more.x[k];
    }
    store_group<kAligned>(y + to[j], sum, width[j]);
  }
}

// The tokens of an index array in the order of one more digit: (keys, tokens) -> (keys, tokens).
struct SortPass {
  const int32_t* keys;
  const int32_t* tokens;  // null: token t stands at t
  int32_t* sorted_keys;
  int32_t* sorted_tokens;
  int32_t* counts;  // [tiles, digits]
  int count, shift, digits;
};

// How often each digit occurs in each tile.
__global__ void __launch_bounds__(kSortTile) embedding_count_kernel(SortPass a) {
  __shared__ int counts[kMostDigits];
  wait_for_last();
  let_next_begin();
  for (int d = threadIdx.x; d < a.digits; d += kSortTile) counts[d] = 0;
  __syncthreads();
  const int i = blockIdx.x * kSortTile + threadIdx.x;
  if (i < a.count) atomicAdd(&counts[a.keys[i] >> a.shift & (a.digits - 1)], 1);
  __syncthreads();
  for (int d = threadIdx.x; d < a.digits; d += kSortTile) a.counts[blockIdx.x * a.digits + d] = counts[d];
}

__global__ void __launch_bounds__(kSortTile) embedding_scatter_kernel(SortPass a) {
  constexpr int kWarps = kSortTile / 32;
  __shared__ int base[kMostDigits];                  // where this tile's tokens of a digit begin
  __shared__ uint16_t of_warp[kWarps][kMostDigits];  // tokens of a digit in a warp, then in the warps before
  __shared__ int warp_sums[kWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  wait_for_last();
  let_next_begin();
  // Tokens of smaller digits, and of this one in tiles before.
  int total = 0, before = 0;
  if (thread < a.digits)
#pragma unroll 16
    for (int t = 0; t < static_cast<int>(gridDim.x); ++t) {
      const int c = a.counts[t * a.digits + thread];
      total += c;
      if (t < static_cast<int>(blockIdx.x)) before += c;
    }
  int sum = total;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += below;
  }
  if (lane == 31) warp_sums[warp] = sum;
  for (int d = lane; d < a.digits; d += 32) of_warp[warp][d] = 0;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_sums[w];
  if (thread < a.digits) base[thread] = sum - total + before;

  const int i = static_cast<int>(blockIdx.x) * kSortTile + thread;
  const bool live = i < a.count;
  const int key = live ? a.keys[i] : 0;
  const int digit = live ? key >> a.shift & (a.digits - 1) : a.digits;  // the dead match one another alone
  const unsigned same = __match_any_sync(kAll, digit);
  const int rank = __popc(same & ((1u << lane) - 1u));
  if (live && rank == 0) of_warp[warp][digit] = static_cast<uint16_t>(__popc(same));
  __syncthreads();
  if (thread < a.digits) {
    int running = 0;
    for (int w = 0; w < kWarps; ++w) {
      const int c = of_warp[w][thread];
      of_warp[w][thread] = static_cast<uint16_t>(running);
      running += c;
    }
  }
  __syncthreads();
  if (live) {
    const int to = base[digit] + of_warp[warp][digit] + rank;
    a.sorted_keys[to] = key;
    a.sorted_tokens[to] = a.tokens ? a.tokens[i] : i;
  }
}

struct SumArgs {
  const int32_t *ids, *tokens;  // sorted
  int count, cols;
  float* partial;  // [chunks, 2, cols]: of the run that enters a chunk, of the one that leaves it
};

template <bool kAligned, class G, class D>
__global__ void __launch_bounds__(kThreads) embedding_sum_runs_kernel(G* dtable, const D* dy, SumArgs a) {
  constexpr int kAhead = 4;
  enum : uint8_t { kInside, kWhole, kEnters, kLeaves };  // what ends at a token: no run, a whole one, a piece of one
  __shared__ int32_t ids[kEmbeddingChunk], tokens[kEmbeddingChunk];
  __shared__ uint8_t ends[kEmbeddingChunk];
  const int first = static_cast<int>(blockIdx.x) * kEmbeddingChunk;
  const int count = min(kEmbeddingChunk, a.count - first);
  const int lane = static_cast<int>(threadIdx.x);
  wait_for_last();
  let_next_begin();
  if (lane < 32) {
    const int32_t id = lane < count ? a.ids[first + lane] : -1;
    const int32_t after = lane < count && first + lane + 1 < a.count ? a.ids[first + lane + 1] : -1;
    const int32_t before = first > 0 ? a.ids[first - 1] : -1;
    const int32_t front = __shfl_sync(kAll, id, 0);
    uint8_t end = kInside;
    if (id != after || lane == count - 1)
      end = id == front && front == before ? kEnters : id == after ? kLeaves : kWhole;
    ids[lane] = id;
    tokens[lane] = lane < count ? a.tokens[first + lane] : 0;
    ends[lane] = end;
  }
  __syncthreads();
  const int col = (static_cast<int>(blockIdx.y) * kThreads + lane) * kWide;
  if (col >= a.cols) return;
  const int width = min(kWide, a.cols - col);
  Wide sum{};
  for (int t = 0; t < count; t += kAhead) {
    Packed<D> x[kAhead];
    Packed<G> old[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = min(t + j, count - 1);
      x[j] = grab<kAligned>(dy + int64_t{tokens[at]} * a.cols + col, width);
      if (ends[at] == kWhole) old[j] = grab<kAligned>(dtable + int64_t{ids[at]} * a.cols + col, width);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (t + j >= count) continue;
      const Wide more = widen(x[j]);
#pragma unroll
      for (int k = 0; k < kWide; ++k) sum.x[k] += more.x[k];
      const uint8_t end = ends[t + j];
      if (end == kInside) continue;
      if (end == kWhole) {
        const Wide before = widen(old[j]);
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum.x[k] += before.x[k];
        store_group<kAligned>(dtable + int64_t{ids[t + j]} * a.cols + col, sum, width);
      } else {
        store_group<kAligned>(a.partial + (int64_t{blockIdx.x} * 2 + (end == kLeaves)) * a.cols + col, sum, width);
      }
      sum = {};
    }
  }
}

// The pieces of the run that leaves a chunk and began there.
template <bool kAligned, class G>
__global__ void __launch_bounds__(kThreads) embedding_join_runs_kernel(G* dtable, SumArgs a) {
  constexpr int kAhead = 4;
  const int chunk = static_cast<int>(blockIdx.x), last = (chunk + 1) * kEmbeddingChunk - 1;
  wait_for_last();
  if (last + 1 >= a.count) return;
  const int32_t id = a.ids[last];
  if (a.ids[last + 1] != id) return;
  const int first = chunk * kEmbeddingChunk;
  if (first > 0 && a.ids[first] == id && a.ids[first - 1] == id) return;  // entered before
  // The first chunk that does not begin with this id: ids are sorted.
  __shared__ int end;
  if (threadIdx.x == 0) end = INT_MAX;
  __syncthreads();
  for (int c = chunk + 1 + static_cast<int>(threadIdx.x); end == INT_MAX; c += kThreads) {
    const int64_t at = int64_t{c} * kEmbeddingChunk;
    const bool beyond = at >= a.count || a.ids[at] != id;
    __syncthreads();
    if (beyond) atomicMin(&end, c);
    __syncthreads();
  }
  const int col = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kWide;
  if (col >= a.cols) return;
  const int width = min(kWide, a.cols - col);
  G* to = dtable + int64_t{id} * a.cols + col;
  const Wide before = load_group<kAligned>(to, width);
  Wide sum{};
  for (int c = chunk; c < end; c += kAhead) {
    Packed<float> x[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = min(c + j, end - 1);
      x[j] = grab<kAligned>(a.partial + (int64_t{at} * 2 + (at == chunk)) * a.cols + col, width);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (c + j >= end) continue;
      const Wide more = widen(x[j]);
#pragma unroll
      for (int k = 0; k < kWide; ++k) sum.x[k] += more.x[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kWide; ++k) sum.x[k] += before.x[k];
  store_group<kAligned>(to, sum, width);
}

template <class F>
void visit_aligned(bool aligned, F&& f) {
  aligned ? f(std::true_type{}) : f(std::false_type{});
}

void scatter(Exec& exec, Tensor dtable, ConstTensor dy, ConstTensor indices) {
  const int64_t tokens = dy.dim(0), cols = dy.dim(1), rows = dtable.dim(0);
  if (tokens == 0 || cols == 0) return;
  const int64_t needs = embedding_scratch_bytes(tokens, rows, cols);
  check(needs <= exec.shared_scratch_bytes(), "embedding_bwd: needs {} bytes of shared scratch, has {}", needs,
        exec.shared_scratch_bytes());
  CudaDevice& device = device_of(exec);
  std::byte* scratch = exec.shared_scratch();
  auto* lists = reinterpret_cast<int32_t*>(scratch);
  auto* counts = reinterpret_cast<int32_t*>(scratch + round_up_256(4 * tokens * int64_t{sizeof(int32_t)}));
  auto* partial = reinterpret_cast<float*>(scratch + embedding_sort_bytes(tokens));

  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(rows - 1))));
  const int most = std::bit_width(static_cast<unsigned>(kMostDigits)) - 1;
  const int passes = static_cast<int>(ceil_div(bits, most)), digit_bits = static_cast<int>(ceil_div(bits, passes));
  const int32_t *keys = indices.as<int32_t>(), *order = nullptr;
  const Grid tiles{
      .blocks = static_cast<unsigned>(ceil_div(tokens, int64_t{kSortTile})), .threads = kSortTile, .follows = true};
  for (int pass = 0; pass < passes; ++pass) {
    int32_t* to = lists + pass % 2 * 2 * tokens;
    const SortPass args{.keys = keys,
                        .tokens = order,
                        .sorted_keys = to,
                        .sorted_tokens = to + tokens,
                        .counts = counts,
                        .count = static_cast<int>(tokens),
                        .shift = pass * digit_bits,
                        .digits = 1 << digit_bits};
    launch(device, tiles, embedding_count_kernel, args);
    launch(device, tiles, embedding_scatter_kernel, args);
    keys = to;
    order = to + tokens;
  }
  const SumArgs args{.ids = keys,
                     .tokens = order,
                     .count = static_cast<int>(tokens),
                     .cols = static_cast<int>(cols),
                     .partial = partial};
  const Grid grid{.blocks = dim3(static_cast<unsigned>(ceil_div(tokens, int64_t{kEmbeddingChunk})),
                                 static_cast<unsigned>(ceil_div(cols, int64_t{kThreads} * kWide))),
                  .threads = kThreads,
                  .follows = true};
  visit_aligned(whole_groups(cols, {dtable.data, dy.data}), [&](auto aligned) {
    visit_float(dtable, [&]<class G>(G* to) {
      visit_float(dy, [&]<class D>(const D* from) {
        launch(device, grid, embedding_sum_runs_kernel<aligned(), G, D>, to, from, args);
      });
      launch(device, grid, embedding_join_runs_kernel<aligned(), G>, to, args);
    });
  });
}

}  // namespace

void embedding_fwd(Exec& exec, Tensor y, ConstTensor ids, ConstTensor table, ConstTensor positions,
                   ConstTensor position_table) {
  const OpScope scope(exec, "embedding_fwd");
  if (y.count() == 0) return;
  const int64_t items = y.dim(0) * ceil_div(y.dim(1), int64_t{kWide});
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(items, int64_t{kThreads} * kGathers)), .threads = kThreads};
  const bool whole = whole_groups(y.dim(1), {y.data, table.data, position_table.data});
  visit_aligned(whole, [&](auto aligned) {
    visit_float(y, [&]<class Y>(Y* to) {
      visit_float(table, [&]<class W>(const W* from) {
        launch(device_of(exec), grid, embedding_gather_kernel<aligned(), Y, W>, to, ids.as<int32_t>(), from,
               position_table ? positions.as<int32_t>() : nullptr, static_cast<const W*>(position_table.data), y.dim(0),
               y.dim(1));
      });
    });
  });
}

void embedding_bwd(Exec& exec, Tensor dtable, Tensor dposition_table, ConstTensor dy, ConstTensor ids,
                   ConstTensor positions) {
  const OpScope scope(exec, "embedding_bwd");
  scatter(exec, dtable, dy, ids);
  if (dposition_table) scatter(exec, dposition_table, dy, positions);
}

}  // namespace mantissa::cuda
