#include "ops/cpu/gemm/pack.h"

#include "ops/cpu/gemm/decode.h"
#include "ops/cpu/gemm/decode_rows.h"
#include "ops/cpu/gemm/transpose.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

// A stored block of the side: 16 outer rows and a tile's span of K, in the order in which the side stores them.
struct StoredBlock {
  const void* data;
  int64_t stride;  // bytes between rows
};

template <class E>
inline E element_of(const GemmOperand& x, int64_t row, int64_t col, bool scaled) {
  const float value = element_at(x.data, x.dtype, row * x.stride + col);
  return from_float<E>(scaled ? value * scale_at(x, row, col) : value);
}

// The block at (row, col) of the stored data, `rows` x `cols` elements of E; in place where the data holds E and the
// block is whole, else decoded into `buffer` with zeros beyond the edges.
template <class E>
inline StoredBlock fetch(const GemmOperand& x, int64_t row, int64_t col, int rows, int cols, bool scaled, E* buffer) {
  const int64_t all_rows = x.transposed ? x.k : x.outer, all_cols = x.transposed ? x.outer : x.k;
  const bool same = x.dtype == (sizeof(E) == 2 ? DType::kBF16 : DType::kF32);
  const bool whole = row + rows <= all_rows && col + cols <= all_cols;
  if (whole && same) return {static_cast<const E*>(x.data) + row * x.stride + col, x.stride * int64_t{sizeof(E)}};
  if (whole) {
    for (int r = 0; r < rows; ++r) decode_row(x, row + r, col, cols, scaled, buffer + r * cols);
  } else {
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < cols; ++c) {
        const bool inside = row + r < all_rows && col + c < all_cols;
        buffer[r * cols + c] = inside ? element_of<E>(x, row + r, col + c, scaled) : E{};
      }
  }
  return {buffer, cols * int64_t{sizeof(E)}};
}

template <class E, bool left>
inline void pack_tile(const GemmOperand& x, int64_t outer, int64_t k, bool scaled, void* out) {
  constexpr int kSpan = 64 / sizeof(E);
  alignas(64) E buffer[kPanelRows * kSpan];
  if (!x.transposed) {
    const StoredBlock in = fetch<E>(x, outer, k, kPanelRows, kSpan, scaled, buffer);
    left ? copy_tile(in.data, in.stride, out) : transpose_tile(in.data, in.stride, out);
    return;
  }
  const StoredBlock in = fetch<E>(x, k, outer, kSpan, kPanelRows, scaled, buffer);
  if constexpr (sizeof(E) == 4) {
    left ? transpose_tile(in.data, in.stride, out) : copy_tile(in.data, in.stride, out);
  } else if constexpr (left) {
    alignas(64) uint32_t pairs[16 * 16];
    interleave_tile(in.data, in.stride, pairs);
    transpose_tile(pairs, 64, out);
  } else {
    interleave_tile(in.data, in.stride, out);
  }
}

#if defined(__AVX512BW__)
// Panels `outer` and `outer` + 16 of a transposed BF16 side at once, so that whole cache lines are read; both are
// inside.
template <bool left>
inline void pack_two_tiles(const GemmOperand& x, int64_t outer, int64_t k, char* out, int64_t stride) {
  const bf16* in = static_cast<const bf16*>(x.data) + k * x.stride + outer;
  if constexpr (left) {
    alignas(64) uint32_t pairs[2][16 * 16];
    interleave_two_tiles(in, 2 * x.stride, pairs[0], pairs[1]);
    transpose_tile(pairs[0], 64, out);
    transpose_tile(pairs[1], 64, out + stride);
  } else {
    interleave_two_tiles(in, 2 * x.stride, out, out + stride);
  }
}
#endif

// Rows of the stored data are read along their length: panels inside, tiles outside where the side is transposed.
template <class E, bool left>
inline void pack(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles, bool scaled,
                 void* out, int64_t stride) {
  constexpr int64_t kSpan = 64 / sizeof(E);
  const int64_t slow = x.transposed ? k_tiles : panels, quick = x.transposed ? panels : k_tiles;
  for (int64_t i = 0; i < slow; ++i)
    for (int64_t j = 0; j < quick; ++j) {
      const int64_t panel = x.transposed ? j : i, t = x.transposed ? i : j;
      const int64_t at = outer + panel * kPanelRows;
      char* tile = static_cast<char*>(out) + panel * stride + t * kTileBytes;
#if defined(__AVX512BW__)
      if (sizeof(E) == 2 && x.transposed && x.dtype == DType::kBF16 && j + 2 <= quick &&
          at + 2 * kPanelRows <= x.outer && k + (t + 1) * kSpan <= x.k) {
        pack_two_tiles<left>(x, at, k + t * kSpan, tile, stride);
        ++j;
        continue;
      }
#endif
      pack_tile<E, left>(x, at, k + t * kSpan, scaled, tile);
    }
}

}  // namespace

void pack_left_f32(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles, bool scaled,
                   void* out, int64_t stride) {
  pack<float, true>(x, outer, panels, k, k_tiles, scaled, out, stride);
}
void pack_right_f32(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles, bool scaled,
                    void* out, int64_t stride) {
  pack<float, false>(x, outer, panels, k, k_tiles, scaled, out, stride);
}
void pack_left_bf16(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles, bool scaled,
                    void* out, int64_t stride) {
  pack<bf16, true>(x, outer, panels, k, k_tiles, scaled, out, stride);
}
void pack_right_bf16(const GemmOperand& x, int64_t outer, int64_t panels, int64_t k, int64_t k_tiles, bool scaled,
                     void* out, int64_t stride) {
  pack<bf16, false>(x, outer, panels, k, k_tiles, scaled, out, stride);
}

}  // namespace mantissa::MANTISSA_ISA_NS
