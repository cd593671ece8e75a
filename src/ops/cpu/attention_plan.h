// How attention is cut into units of work, blocks and scratch.
#pragma once

#include "base/parallel.h"
#include "ops/cpu/attention.h"

namespace mantissa::MANTISSA_ISA_NS {

constexpr int64_t kKeyBlock = 64;                  // keys of one block of scores
constexpr int64_t kPanelKeys = 512;                // keys packed at once, forward
constexpr int64_t kMaxLaneHeads = 8;               // query heads of one kv head that are processed together
constexpr int64_t kMaxLanes = 128;                 // kMaxLaneHeads heads of at least 16 queries
constexpr int64_t kStateBytes = int64_t{1} << 20;  // output accumulators of one unit

MANTISSA_HD int64_t round_up(int64_t n, int64_t granule) { return (n + granule - 1) / granule * granule; }
MANTISSA_HD int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Queries of one head in a block: 64, 32 or 16, so that the heads together fill at most kMaxLanes.
MANTISSA_HD int64_t query_block(int64_t heads) { return heads <= 2 ? 64 : heads <= 4 ? 32 : 16; }

// Queries whose output accumulators fit kStateBytes: a multiple of every query block.
MANTISSA_HD int64_t chunk_queries(int64_t heads, int64_t depth) {
  const int64_t fit = kStateBytes / (heads * depth * int64_t{sizeof(float)}) / 64 * 64;
  return fit < 64 ? 64 : min_of(fit, 512);
}

// One piece of work. A unit alone writes its outputs, so results depend neither on the threads nor on the order.
struct Unit {
  int32_t segment;
  int32_t head;  // forward: first query head; backward: kv head
  int32_t part;
};

// Hands out the parts of a thread's scratch.
class Scratch {
 public:
  explicit Scratch(std::byte* begin) : at_(begin), end_(begin + Exec::kThreadScratch) {}
  template <class T>
  T* take(int64_t count) {
    auto* taken = reinterpret_cast<T*>(at_);
    at_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    if (at_ > end_) __builtin_trap();  // the constants above are chosen to fit
    return taken;
  }

 private:
  std::byte *at_, *end_;
};

// The query heads and queries of one block of scores. Lane l is head first_head + l / width, query begin + l % width.
struct Lanes {
  int64_t first_head, heads;  // at most kMaxLaneHeads
  int64_t begin, count;       // queries, from the segment's start
  int64_t width;              // lanes of a head, a multiple of 16
  int64_t lanes;              // of all heads, padded to `granule`

  Lanes(int64_t head, int64_t head_count, int64_t first, int64_t end, int64_t granule)
      : first_head(head),
        heads(head_count),
        begin(first),
        count(min_of(query_block(head_count), end - first)),
        width(round_up(count, 16)),
        lanes(round_up(heads * width, granule)) {}
};

// Scores [keys, lanes] of keys that lie after the lane's query become -Inf.
inline void mask_future(float* scores, const Lanes& q, int64_t first_key, int64_t keys) {
  for (int64_t c = 0; c < keys; ++c) {
    const int64_t hidden = min_of(first_key + c - q.begin, q.width);
    for (int64_t h = 0; h < q.heads; ++h)
      for (int64_t i = 0; i < hidden; ++i) scores[c * q.lanes + h * q.width + i] = -__builtin_inff();
  }
}

// Lists the units in the shared scratch, costly ones first (cost to the power of two), and runs them on all threads.
// `each(emit)` calls emit(unit, cost) for all; `run(scratch, unit)` gets its thread's scratch.
// False if the list does not fit.
template <class Each, class Run>
bool run_units(Exec& exec, const TileKernel& kernel, Each&& each, Run&& run) {
  constexpr int kClasses = 64;
  int64_t start[kClasses + 1] = {};
  const auto class_of = [](int64_t cost) {
    return cost < 1 ? kClasses - 1 : __builtin_clzll(static_cast<uint64_t>(cost));
  };
  each([&](const Unit&, int64_t cost) { ++start[class_of(cost) + 1]; });
  for (int c = 0; c < kClasses; ++c) start[c + 1] += start[c];
  const int64_t count = start[kClasses];
  if (count * int64_t{sizeof(Unit)} > exec.shared_scratch_bytes()) return false;
  auto* units = reinterpret_cast<Unit*>(exec.shared_scratch());
  each([&](const Unit& unit, int64_t cost) { units[start[class_of(cost)]++] = unit; });
  int64_t next = 0;
  parallel_for(min_of(exec.threads(), count), 1, [&](int64_t, int64_t) {
    std::byte* scratch = exec.thread_scratch(thread_id());
    if (kernel.begin) kernel.begin();
    for (;;) {
      const int64_t i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
      if (i >= count) break;
      run(scratch, units[i]);
    }
    if (kernel.end) kernel.end();
  });
  return true;
}

}  // namespace mantissa::MANTISSA_ISA_NS
