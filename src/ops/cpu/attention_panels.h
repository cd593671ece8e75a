// Attention's operands in the panels of gemm/tile.h. Cell is what a panel holds: float, or bf16 in pairs along K.
#pragma once

#include "ops/cpu/attention_plan.h"
#include "ops/cpu/gemm/transpose.h"

namespace mantissa::MANTISSA_ISA_NS {

template <class Cell>
constexpr int64_t kSpan = 64 / int64_t{sizeof(Cell)};  // K of a tile; also what keys, lanes and head_dim are padded to

// Panels of 16 outer rows, k_tiles tiles each.
struct Panels {
  std::byte* data = nullptr;
  int64_t k_tiles = 0;

  std::byte* tile(int64_t panel, int64_t t) const { return data + (panel * k_tiles + t) * kTileBytes; }
};

template <class Cell>
Panels take_panels(Scratch& scratch, int64_t outer, int64_t k) {
  return {scratch.take<std::byte>(outer * k * int64_t{sizeof(Cell)}), k / kSpan<Cell>};
}

// rows[0, padded) of `depth` cells = x[count, dim] in rows of `stride` elements, zero beyond.
template <class Cell, class E>
void stage_rows(Cell* rows, int64_t depth, const E* x, int64_t stride, int64_t count, int64_t padded, int64_t dim) {
  for (int64_t r = 0; r < count; ++r) {
    Cell* to = rows + r * depth;
    const E* from = x + r * stride;
    if constexpr (sizeof(Cell) == sizeof(E)) {
      std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(E));
    } else {
#pragma omp simd
      for (int64_t d = 0; d < dim; ++d) to[d] = to_float(from[d]);
    }
    if (dim < depth) std::memset(to + dim, 0, static_cast<size_t>(depth - dim) * sizeof(Cell));
  }
  std::memset(rows + count * depth, 0, static_cast<size_t>((padded - count) * depth) * sizeof(Cell));
}

// The staged rows as panels: "rows" are outer with K along depth, "columns" the other way round.
template <class Cell>
void pack_left_rows(const Panels& p, int64_t panel, const Cell* rows, int64_t depth, int64_t count) {
  for (int64_t r = 0; r < count; r += 16)
    for (int64_t t = 0; t < depth / kSpan<Cell>; ++t)
      copy_tile(rows + r * depth + t * kSpan<Cell>, depth * int64_t{sizeof(Cell)}, p.tile(panel + r / 16, t));
}

template <class Cell>
void pack_right_rows(const Panels& p, const Cell* rows, int64_t depth, int64_t count) {
  for (int64_t r = 0; r < count; r += 16)
    for (int64_t t = 0; t < depth / kSpan<Cell>; ++t)
      transpose_tile(rows + r * depth + t * kSpan<Cell>, depth * int64_t{sizeof(Cell)}, p.tile(r / 16, t));
}

template <class Cell>
void pack_left_columns(const Panels& p, int64_t tile, const Cell* rows, int64_t depth, int64_t count) {
  alignas(64) std::byte pairs[kTileBytes];
  for (int64_t r = 0; r < count; r += kSpan<Cell>)
    for (int64_t d = 0; d < depth; d += 16) {
      const Cell* from = rows + r * depth + d;
      std::byte* to = p.tile(d / 16, tile + r / kSpan<Cell>);
      if constexpr (sizeof(Cell) == 4) {
        transpose_tile(from, depth * 4, to);
      } else {
        interleave_tile(from, depth * 2, pairs);
        transpose_tile(pairs, 64, to);
      }
    }
}

template <class Cell>
void pack_right_columns(const Panels& p, const Cell* rows, int64_t depth, int64_t count) {
  for (int64_t r = 0; r < count; r += kSpan<Cell>)
    for (int64_t d = 0; d < depth; d += 16) {
      const Cell* from = rows + r * depth + d;
      std::byte* to = p.tile(d / 16, r / kSpan<Cell>);
      if constexpr (sizeof(Cell) == 4)
        copy_tile(from, depth * 4, to);
      else
        interleave_tile(from, depth * 2, to);
    }
}

// to[count, dim] in rows of `stride` elements = factor[l] from[d, l] for lanes l; `from` has `lanes` columns.
template <class E>
void store_lanes(E* to, int64_t stride, const float* from, int64_t lanes, int64_t count, int64_t dim,
                 const float* factor) {
  alignas(64) uint32_t turned[16 * 16];
  for (int64_t l = 0; l < count; l += 16)
    for (int64_t d = 0; d < dim; d += 16) {
      transpose_tile(from + d * lanes + l, lanes * int64_t{sizeof(float)}, turned);
      const int64_t rows = min_of(16, count - l), cols = min_of(16, dim - d);
      for (int64_t r = 0; r < rows; ++r) {
        E* row = to + (l + r) * stride + d;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c)
          row[c] = from_float<E>(factor[l + r] * std::bit_cast<float>(turned[r * 16 + c]));
      }
    }
}

// to[count, dim] = factor * from, rows of `stride` and `depth` elements.
template <class E>
void store_rows(E* to, int64_t stride, const float* from, int64_t depth, int64_t count, int64_t dim, float factor) {
  for (int64_t r = 0; r < count; ++r) {
    E* row = to + r * stride;
#pragma omp simd
    for (int64_t d = 0; d < dim; ++d) row[d] = from_float<E>(factor * from[r * depth + d]);
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
