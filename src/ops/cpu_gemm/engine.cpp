#include "ops/cpu_gemm/engine.h"

#include <algorithm>

#include "base/parallel.h"
#include "tensor/quant.h"

namespace mantissa {
namespace {

constexpr int64_t kLeftBytes = 512 << 10;  // a thread's left block, half of a second-level cache of 1 MiB
constexpr int64_t kMaxTiles = 1024;        // longest packed stretch of K: two left panels of it fill 2 MiB
constexpr int64_t kMaxLeftPanels = 16, kSumPanels = 24;
constexpr int64_t kSumColumns = kSumPanels * kPanelRows;
constexpr int64_t kScaleBlock = 128;  // elements of K that share an FP32 scale
constexpr int64_t kThinTiles = 64;  // stretch of K of a thin product: a right block of it stays in a second-level cache
constexpr double kPackCost = 3;     // packing a tile over multiplying a pair of tiles, about

// Parts of a thread's scratch, in bytes.
constexpr int64_t kLeftAt = 0, kSumsAt = 3 << 20, kBlockAt = kSumsAt + kMaxLeftPanels * kSumPanels * kTileBytes;
static_assert(kBlockAt + 64 * kMaxBlockColumns * 4 <= Exec::kThreadScratch);

// Bytes between panels of `tiles` tiles. Odd in cache lines: neighbouring panels, read side by side, start in different
// sets of the first-level cache.
constexpr int64_t panel_stride(int64_t tiles) { return tiles * kTileBytes + 3 * 64; }

// FP32 sides: their own rounding does not hide what one long sum loses.
bool sums_apart(const GemmProblem& p) { return p.a.dtype == DType::kF32 && p.b.dtype == DType::kF32; }
static_assert(kMaxTiles % kSumTiles == 0 && kThinTiles % kSumTiles == 0);

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Part i of `parts` of [0, n), cut at multiples of `grain`.
Range part(int64_t n, int64_t grain, int64_t parts, int64_t i) {
  const int64_t units = ceil_div(n, grain);
  return {std::min(n, units * i / parts * grain), std::min(n, units * (i + 1) / parts * grain)};
}

// Threads as a grid over c: rows x columns.
struct Grid {
  int64_t rows, columns;
};

Grid choose_grid(int64_t threads, int64_t m_panels, int64_t n_panels, const TileKernel& t) {
  Grid best{1, 1};
  double least = 0;
  for (int64_t rows = 1; rows <= threads; ++rows) {
    const int64_t columns = threads / rows;
    const double m = static_cast<double>(ceil_div(ceil_div(m_panels, t.left_panels), rows) * t.left_panels);
    const double n = static_cast<double>(ceil_div(ceil_div(n_panels, t.right_panels), columns) * t.right_panels);
    const double cost = m * n + kPackCost * m;
    if (rows == 1 || cost < least) best = {rows, columns}, least = cost;
  }
  return best;
}

// One stretch of c and K whose right panels are packed; positions in panels and tiles.
struct Stretch {
  Range m, n;
  int64_t first_tile, tiles;
  bool first, last;  // of the stretches along K
  const std::byte* right;
  float* sums;  // [m, n] FP32 sums that outlive the stretch, where K has several
};

class Multiplier {
 public:
  Multiplier(const GemmEngine& engine, const GemmProblem& p, const Stretch& s, std::byte* scratch)
      : e_(engine), t_(engine.tiles), p_(p), s_(s), scratch_(scratch) {
    chunk_ = p.scaling == GemmScaling::kBlock ? kScaleBlock / tile_k(t_.math)
                                              : ceil_div(s.tiles, ceil_div(s.tiles, t_.k_tiles));
    if (sums_apart(p)) chunk_ = ceil_div(chunk_, kSumTiles) * kSumTiles;
  }

  // The part of c in panels `rows` x `columns`.
  void run(Range rows, Range columns) {
    const int64_t step = std::clamp(kLeftBytes / (s_.tiles * kTileBytes) / t_.left_panels * t_.left_panels,
                                    int64_t{t_.left_panels}, kMaxLeftPanels);
    if (t_.begin) t_.begin();
    for (int64_t m = rows.begin; m < rows.end; m += step) {
      const Range left{m, std::min(m + step, rows.end)};
      t_.pack_left(p_.a, m * kPanelRows, left.size(), s_.first_tile * tile_k(t_.math), s_.tiles,
                   p_.scaling == GemmScaling::kInside, scratch_ + kLeftAt, panel_stride(s_.tiles));
      for (int64_t n = columns.begin; n < columns.end; n += kSumPanels)
        multiply_columns(left, {n, std::min(n + kSumPanels, columns.end)});
    }
    if (t_.end) t_.end();
  }

 private:
  void multiply_columns(Range left, Range right) {
    for (int64_t tile = 0; tile < s_.tiles; tile += chunk_)
      for (int64_t n = right.begin, width; n < right.end; n += width) {
        // The last two blocks share what is left, so that none is a single panel.
        const int64_t rest = right.end - n;
        width = rest >= 2 * t_.right_panels ? t_.right_panels : rest > t_.right_panels ? ceil_div(rest, 2) : rest;
        for (int64_t m = left.begin; m < left.end; m += t_.left_panels)
          multiply_block(left.begin, right.begin, {m, std::min(m + t_.left_panels, left.end)}, {n, n + width}, tile);
      }
  }

  // Block [m, n] of c, chunk of K from `tile`. Sums stay in one small block when K is a single chunk.
  void multiply_block(int64_t left0, int64_t right0, Range m, Range n, int64_t tile) {
    const bool scaled = p_.scaling == GemmScaling::kBlock;
    const bool begins = s_.first && tile == 0, ends = s_.last && tile + chunk_ >= s_.tiles;
    auto* block = reinterpret_cast<float*>(scratch_ + kBlockAt);
    float* sums = block;
    int64_t stride = kMaxBlockColumns;
    if (s_.sums) {
      stride = s_.n.size() * kPanelRows;
      sums = s_.sums + (m.begin - s_.m.begin) * kPanelRows * stride + (n.begin - s_.n.begin) * kPanelRows;
    } else if (!(begins && ends)) {
      stride = kSumColumns;
      sums = reinterpret_cast<float*>(scratch_ + kSumsAt) + (m.begin - left0) * kPanelRows * stride +
             (n.begin - right0) * kPanelRows;
    }
    const int64_t panel = panel_stride(s_.tiles);
    multiply(t_, {.left = scratch_ + kLeftAt + (m.begin - left0) * panel + tile * kTileBytes,
                  .left_stride = panel,
                  .right = s_.right + (n.begin - s_.n.begin) * panel + tile * kTileBytes,
                  .right_stride = panel,
                  .c = scaled ? block : sums,
                  .c_stride = scaled ? kMaxBlockColumns : stride,
                  .left_panels = static_cast<int>(m.size()),
                  .right_panels = static_cast<int>(n.size()),
                  .k_tiles = std::min(chunk_, s_.tiles - tile),
                  .accumulate = !scaled && !begins,
                  .apart = sums_apart(p_)});
    const int64_t m0 = m.begin * kPanelRows, n0 = n.begin * kPanelRows;
    const int rows = static_cast<int>(std::min(m.size() * kPanelRows, p_.m - m0));
    const int cols = static_cast<int>(std::min(n.size() * kPanelRows, p_.n - n0));
    if (scaled) {
      if (begins && ends) sums = reinterpret_cast<float*>(scratch_ + kSumsAt), stride = kSumColumns;
      e_.scale_sums(p_, m0, n0, rows, cols, (s_.first_tile + tile) * tile_k(t_.math), block, kMaxBlockColumns, sums,
                    stride, begins);
    }
    if (ends) e_.store(p_, m0, n0, rows, cols, sums, stride);
  }

  const GemmEngine& e_;
  const TileKernel& t_;
  const GemmProblem& p_;
  const Stretch& s_;
  std::byte* scratch_;
  int64_t chunk_;  // tiles of K between visits to a block of c
};

void multiply_stretch(Exec& exec, const GemmEngine& engine, const GemmProblem& p, const Stretch& s, std::byte* right) {
  const TileKernel& t = engine.tiles;
  const int64_t panel = panel_stride(s.tiles);
  parallel_for(s.n.size(), 1, [&](int64_t begin, int64_t end) {
    t.pack_right(p.b, (s.n.begin + begin) * kPanelRows, end - begin, s.first_tile * tile_k(t.math), s.tiles,
                 p.scaling == GemmScaling::kInside, right + begin * panel, panel);
  });
  const Grid grid = choose_grid(exec.threads(), s.m.size(), s.n.size(), t);
  parallel_for(grid.rows * grid.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Range m = part(s.m.size(), t.left_panels, grid.rows, i / grid.columns);
      const Range n = part(s.n.size(), t.right_panels, grid.columns, i % grid.columns);
      Multiplier(engine, p, s, exec.thread_scratch(thread_id()))
          .run({s.m.begin + m.begin, s.m.begin + m.end}, {s.n.begin + n.begin, s.n.begin + n.end});
    }
  });
}

// One left panel (M up to 16): nothing shares the right panels, so each thread packs those of its columns a stretch of
// K at a time and multiplies them while they are in its cache. Sums run along K in the same order as elsewhere.
void run_thin(Exec& exec, const GemmEngine& engine, const GemmProblem& p, int64_t tiles) {
  const TileKernel& t = engine.tiles;
  const bool scaled = p.scaling == GemmScaling::kInside;
  std::byte* left = exec.shared_scratch();
  parallel_for(tiles, 16, [&](int64_t begin, int64_t end) {
    t.pack_left(p.a, 0, 1, begin * tile_k(t.math), end - begin, scaled, left + begin * kTileBytes, 0);
  });
  const int64_t panels = ceil_div(p.n, kPanelRows);
  parallel_for(panels, t.right_panels, [&](int64_t begin, int64_t end) {
    std::byte* scratch = exec.thread_scratch(thread_id());
    auto* sums = reinterpret_cast<float*>(scratch + kBlockAt);
    if (t.begin) t.begin();
    for (int64_t n = begin, width; n < end; n += width) {
      width = std::min<int64_t>(t.right_panels, end - n);
      for (int64_t tile = 0, step; tile < tiles; tile += step) {
        step = std::min(kThinTiles, tiles - tile);
        t.pack_right(p.b, n * kPanelRows, width, tile * tile_k(t.math), step, scaled, scratch, panel_stride(step));
        multiply(t, {.left = left + tile * kTileBytes,
                     .left_stride = 0,
                     .right = scratch,
                     .right_stride = panel_stride(step),
                     .c = sums,
                     .c_stride = kMaxBlockColumns,
                     .left_panels = 1,
                     .right_panels = static_cast<int>(width),
                     .k_tiles = step,
                     .accumulate = tile > 0,
                     .apart = sums_apart(p),
                     .left_rows = static_cast<int>(p.m)});
      }
      engine.store(p, 0, n * kPanelRows, static_cast<int>(p.m),
                   static_cast<int>(std::min(width * kPanelRows, p.n - n * kPanelRows)), sums, kMaxBlockColumns);
    }
    if (t.end) t.end();
  });
}

}  // namespace

void run_gemm(Exec& exec, const GemmEngine& engine, const GemmProblem& p) {
  const TileKernel& t = engine.tiles;
  if (const int64_t tiles = ceil_div(p.k, tile_k(t.math));
      p.m <= kPanelRows && p.scaling != GemmScaling::kBlock && tiles * kTileBytes <= exec.shared_scratch_bytes())
    return run_thin(exec, engine, p, tiles);
  const int64_t m_panels = ceil_div(p.m, kPanelRows), n_panels = ceil_div(p.n, kPanelRows);
  const int64_t all_tiles = ceil_div(p.k, tile_k(t.math)), tiles = std::min(all_tiles, kMaxTiles);
  const bool several = tiles < all_tiles;
  const int64_t panel = panel_stride(tiles), bytes = exec.shared_scratch_bytes();
  // Right panels of a stretch, then the sums of its rows where K needs several stretches.
  const int64_t fit = (several ? bytes / 2 : bytes) / panel / t.right_panels * t.right_panels;
  check(fit > 0, "gemm: shared scratch of {} bytes does not hold {} panels of {} bytes", bytes, t.right_panels, panel);
  const int64_t n_step = std::min(n_panels, fit);
  const int64_t sums_fit = (bytes - n_step * panel) / (n_step * kTileBytes) / t.left_panels * t.left_panels;
  const int64_t m_step = several ? std::min(m_panels, sums_fit) : m_panels;
  check(m_step > 0, "gemm: shared scratch of {} bytes holds no sums beside {} panels", bytes, n_step);
  std::byte* right = exec.shared_scratch();
  for (int64_t n = 0; n < n_panels; n += n_step)
    for (int64_t m = 0; m < m_panels; m += m_step)
      for (int64_t tile = 0; tile < all_tiles; tile += tiles)
        multiply_stretch(exec, engine, p,
                         {.m = {m, std::min(m + m_step, m_panels)},
                          .n = {n, std::min(n + n_step, n_panels)},
                          .first_tile = tile,
                          .tiles = std::min(tiles, all_tiles - tile),
                          .first = tile == 0,
                          .last = tile + tiles >= all_tiles,
                          .right = right,
                          .sums = several ? reinterpret_cast<float*>(right + n_step * panel) : nullptr},
                         right);
}

}  // namespace mantissa
