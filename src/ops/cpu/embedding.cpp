#include "ops/cpu/embedding.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kTile = 128;  // columns summed at a time

template <class Y, class W>
void gather(const EmbeddingFwd& a) {
  const int64_t n = a.cols;
  const auto* table = static_cast<const W*>(a.table);
  const auto* position_table = static_cast<const W*>(a.position_table);
  parallel_for(a.rows, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      Y* y = static_cast<Y*>(a.y) + t * n;
      const W* row = table + a.ids[t] * n;
      if (position_table) {
        const W* position = position_table + a.positions[t] * n;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = from_float<Y>(to_float(row[i]) + to_float(position[i]));
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = convert<Y>(row[i]);
      }
    }
  });
}

// Tokens of one id are linked in token order; threads own columns, so every row of the table has one order of
// additions.
template <class G, class D>
void scatter(const EmbeddingBwd& a) {
  const int64_t n = a.cols;
  for (int64_t v = 0; v < a.vocab; ++v) a.first[v] = -1;
  int64_t distinct = 0;
  for (int64_t t = a.rows - 1; t >= 0; --t) {
    const int32_t id = a.ids[t];
    if (a.first[id] < 0) a.used[distinct++] = id;
    a.next[t] = a.first[id];
    a.first[id] = static_cast<int32_t>(t);
  }
  const auto* dy = static_cast<const D*>(a.dy);
  parallel_for(n, kTile / 4, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; c += kTile) {
      const int64_t width = end - c < kTile ? end - c : kTile;
      for (int64_t j = 0; j < distinct; ++j) {
        const int32_t id = a.used[j];
        G* sum = static_cast<G*>(a.dtable) + id * n + c;
        float total[kTile];
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) total[i] = to_float(sum[i]);
        for (int32_t t = a.first[id]; t >= 0; t = a.next[t]) {
          const D* row = dy + t * n + c;
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) total[i] += to_float(row[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) sum[i] = from_float<G>(total[i]);
      }
    }
  });
}

}  // namespace

void embedding_fwd(const EmbeddingFwd& a) {
  with_float(a.y_type, [&](auto y) {
    with_float(a.table_type, [&](auto w) { gather<typename decltype(y)::type, typename decltype(w)::type>(a); });
  });
}

void embedding_bwd(const EmbeddingBwd& a) {
  with_float(a.dtable_type, [&](auto g) {
    with_float(a.dy_type, [&](auto d) { scatter<typename decltype(g)::type, typename decltype(d)::type>(a); });
  });
}

}  // namespace mantissa::MANTISSA_ISA_NS
