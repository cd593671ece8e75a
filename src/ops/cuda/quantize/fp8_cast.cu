#include "ops/cuda/quantize/fp8_cast.h"

#include "ops/cuda/common/fp8_tile.cuh"
#include "ops/cuda/common/reduce.cuh"

namespace mantissa::cuda {
namespace {

// Where the scale of a tensor comes from.
struct ScaleSource {
  const float* amax;  // null: it is given
  float largest;
  bool pow2;
};

__device__ __forceinline__ float scale_of(const TensorCast& cast, const ScaleSource& source) {
  return source.amax ? compute_scale_from_amax(*source.amax, source.largest, source.pow2, kScaleForInfF32)
                     : *cast.scale;
}

template <DType kElement, class T>
__global__ void __launch_bounds__(Fp8Tile::kThreads)
    fp8_tensor_cast_kernel(const TensorCast cast, const ScaleSource source, const T* x, int64_t m, int64_t k) {
  __shared__ TurnedTile shared;
  const Fp8Tile tile = Fp8Tile::of_block(m, k);
  Packed<T> raw[Fp8Tile::kSquare] = {};
  if (tile.inside) {
#pragma unroll
    for (int r = 0; r < Fp8Tile::kSquare; ++r) raw[r] = load_packed(x + (tile.row + r) * k + tile.col);
  }
  const float scale = scale_of(cast, source);
  store_scale_inv(cast, scale);
  float largest = 0;
  Codes codes;
#pragma unroll
  for (int r = 0; r < Fp8Tile::kSquare; ++r) {
    const Wide v = widen(raw[r]);
#pragma unroll
    for (int i = 0; i < kWide; ++i) largest = larger_magnitude(largest, v.x[i]);
    codes.rows[r] = encode_eight<kElement>(v, scale);
  }
  if (cast.rowwise) store_codes(cast.rowwise, tile, k, codes);
  if (cast.columnwise) store_turned(cast.columnwise, Fp8Tile::row0(), Fp8Tile::col0(), m, k, codes, shared);
  raise_amax(cast.raised, largest);
}

// Blocks of 128 along rows, along columns, or of a whole tile; a null form is not wanted.
struct BlockCast {
  uint8_t *rowwise, *columnwise;  // [M,K], [K,M]
  float *row_scales, *col_scales;
  float largest;
  bool pow2;
};

__device__ __forceinline__ float block_scale(const BlockCast& cast, float amax, bool is_bf16) {
  return compute_scale_from_amax(amax, cast.largest, cast.pow2, is_bf16 ? kScaleForInfBF16 : kScaleForInfF32);
}
__device__ __forceinline__ int64_t up_to_four(int64_t n) { return (n + 3) / 4 * 4; }

template <DType kElement, bool kTile, class T>
__global__ void __launch_bounds__(Fp8Tile::kThreads)
    fp8_block_cast_kernel(const BlockCast cast, const T* x, int64_t m, int64_t k) {
  constexpr int kSquare = Fp8Tile::kSquare, kSide = Fp8Tile::kSide, kWarps = Fp8Tile::kThreads / 32;
  constexpr bool kBf16 = sizeof(T) == 2;
  __shared__ TurnedTile shared;
  __shared__ float most[kWarps][kSide];  // of columns, or of the tile
  __shared__ float scales[kSide];
  const Fp8Tile tile = Fp8Tile::of_block(m, k);
  const int across = Fp8Tile::across(), down = Fp8Tile::down(), warp = static_cast<int>(threadIdx.x) / 32;
  Packed<T> raw[kSquare] = {};
  if (tile.inside) {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) raw[r] = load_packed(x + (tile.row + r) * k + tile.col);
  }
  float rows[kSquare] = {}, cols[kSquare] = {};
#pragma unroll
  for (int r = 0; r < kSquare; ++r) {
    const Wide v = widen(raw[r]);
#pragma unroll
    for (int i = 0; i < kSquare; ++i) {
      rows[r] = larger_magnitude(rows[r], v.x[i]);
      cols[i] = larger_magnitude(cols[i], v.x[i]);
    }
  }
#pragma unroll
  for (int r = 0; r < kSquare; ++r)
#pragma unroll
    for (int step = 1; step < Fp8Tile::kAcross; step *= 2)
      rows[r] = fmaxf(rows[r], __shfl_xor_sync(0xffffffffu, rows[r], step));

  Codes codes;
  if constexpr (kTile) {
    float largest = 0;
#pragma unroll
    for (int r = 0; r < kSquare; ++r) largest = fmaxf(largest, rows[r]);
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 16));
    if (threadIdx.x % 32 == 0) most[warp][0] = largest;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, most[w][0]);
    const float scale = block_scale(cast, largest, kBf16);
    if (threadIdx.x == 0) {
      const int64_t blocks_k = (k + kSide - 1) / kSide, blocks_m = (m + kSide - 1) / kSide;
      if (cast.rowwise) cast.row_scales[blockIdx.y * up_to_four(blocks_k) + blockIdx.x] = 1.0f / scale;
      if (cast.columnwise) cast.col_scales[blockIdx.x * up_to_four(blocks_m) + blockIdx.y] = 1.0f / scale;
    }
#pragma unroll
    for (int r = 0; r < kSquare; ++r) codes.rows[r] = encode_eight<kElement>(widen(raw[r]), scale);
    if (cast.rowwise) store_codes(cast.rowwise, tile, k, codes);
    if (cast.columnwise) store_turned(cast.columnwise, Fp8Tile::row0(), Fp8Tile::col0(), m, k, codes, shared);
    return;
  }

  if (cast.rowwise) {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const float scale = block_scale(cast, rows[r], kBf16);
      codes.rows[r] = encode_eight<kElement>(widen(raw[r]), scale);
      if (across == r && tile.row + r < m) cast.row_scales[blockIdx.x * up_to_four(m) + tile.row + r] = 1.0f / scale;
    }
    store_codes(cast.rowwise, tile, k, codes);
  }
  if (!cast.columnwise) return;
#pragma unroll
  for (int i = 0; i < kSquare; ++i) cols[i] = fmaxf(cols[i], __shfl_xor_sync(0xffffffffu, cols[i], 16));
  if (down % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kSquare; ++i) most[warp][across * kSquare + i] = cols[i];
  }
  __syncthreads();
  if (threadIdx.x < kSide) {
    float largest = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, most[w][threadIdx.x]);
    const float scale = block_scale(cast, largest, kBf16);
    scales[threadIdx.x] = scale;
    const int64_t col = int64_t{blockIdx.x} * kSide + threadIdx.x;
    if (col < k) cast.col_scales[blockIdx.y * up_to_four(k) + col] = 1.0f / scale;
  }
  __syncthreads();
  float scale[kSquare];
#pragma unroll
  for (int i = 0; i < kSquare; ++i) scale[i] = scales[across * kSquare + i];
#pragma unroll
  for (int r = 0; r < kSquare; ++r) {
    Wide v = widen(raw[r]);
#pragma unroll
    for (int i = 0; i < kWide; ++i) v.x[i] = __fmul_rn(v.x[i], scale[i]);
    codes.rows[r] = encode_eight<kElement>(v, 1.0f);
  }
  store_turned(cast.columnwise, Fp8Tile::row0(), Fp8Tile::col0(), m, k, codes, shared);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// The forms that are there, one kind of both.
const Quantized& first_form(const Operand& x) { return x.rowwise ? x.rowwise : x.columnwise; }

// FP8 codes of one format, sides of multiples of 16, aligned, and rows few enough for a grid.
bool takes_tiles(const Operand& x, int64_t m, int64_t k) {
  const Quantized& q = first_form(x);
  if (!q || q.format.element == DType::kE2M1 || q.format.values) return false;
  if (x.rowwise && x.columnwise && !(x.rowwise.format == x.columnwise.format)) return false;
  return m % 16 == 0 && k % 16 == 0 && ceil_div(m, Fp8Tile::kSide) < 65536 && aligned(x.rowwise.data.data) &&
         aligned(x.columnwise.data.data);
}

}  // namespace

bool takes_tensor_cast(const Operand& x, int64_t m, int64_t k) {
  const Quantized& q = first_form(x);
  return q && q.format.rule == ScaleRule::kGiven && takes_tiles(x, m, k) && !x.rowwise.amax && !x.columnwise.amax &&
         !(x.rowwise.raised && x.columnwise.raised) &&
         (!x.rowwise || !x.columnwise || x.rowwise.scale == x.columnwise.scale);
}

TensorCast tensor_cast(const Exec& exec, const Operand& x) {
  float* const raised = x.rowwise.raised ? x.rowwise.raised : x.columnwise.raised;
  return {.rowwise = x.rowwise ? x.rowwise.data.as<uint8_t>() : nullptr,
          .columnwise = x.columnwise ? x.columnwise.data.as<uint8_t>() : nullptr,
          .row_scale_inv = x.rowwise ? x.rowwise.scale_inv.as<float>() : nullptr,
          .col_scale_inv = x.columnwise ? x.columnwise.scale_inv.as<float>() : nullptr,
          .scale = first_form(x).scale,
          .raised = exec.pass == Pass::kForward ? raised : nullptr};
}

Grid tile_grid(int64_t m, int64_t k) {
  return {.blocks = dim3(static_cast<unsigned>(ceil_div(k, Fp8Tile::kSide)),
                         static_cast<unsigned>(ceil_div(m, Fp8Tile::kSide))),
          .threads = Fp8Tile::kThreads};
}

bool cast_fp8(Exec& exec, const Operand& x, const float* amax) {
  const int64_t m = x.high.rows(), k = x.high.cols();
  const Quantized& q = first_form(x);
  if (!takes_tiles(x, m, k) || !aligned(x.high.data)) return false;
  const QuantFormat& f = q.format;
  const float largest = f.element == DType::kE4M3 ? kMaxE4M3 : kMaxE5M2;
  const bool pow2 = f.rule == ScaleRule::kCurrentPow2;
  if (f.blocking == Blocking::kTensor) {
    if (f.rule == ScaleRule::kGiven ? !takes_tensor_cast(x, m, k) : !amax) return false;
    const ScaleSource source{.amax = f.rule == ScaleRule::kGiven ? nullptr : amax, .largest = largest, .pow2 = pow2};
    with_fp8(f.element, [&](auto element) {
      visit_float(x.high, [&]<class T>(T* p) {
        launch(device_of(exec), tile_grid(m, k), fp8_tensor_cast_kernel<decltype(element)::value, T>,
               tensor_cast(exec, x), source, p, m, k);
      });
    });
    return true;
  }
  if (f.block != Fp8Tile::kSide || f.layout != ScaleLayout::kLibrary || x.rowwise.amax || x.columnwise.amax ||
      x.rowwise.raised || x.columnwise.raised)
    return false;
  const BlockCast cast{.rowwise = x.rowwise ? x.rowwise.data.as<uint8_t>() : nullptr,
                       .columnwise = x.columnwise ? x.columnwise.data.as<uint8_t>() : nullptr,
                       .row_scales = x.rowwise ? x.rowwise.scale_inv.as<float>() : nullptr,
                       .col_scales = x.columnwise ? x.columnwise.scale_inv.as<float>() : nullptr,
                       .largest = largest,
                       .pow2 = pow2};
  with_fp8(f.element, [&](auto element) {
    visit_float(x.high, [&]<class T>(T* p) {
      constexpr DType kElement = decltype(element)::value;
      if (f.blocking == Blocking::kTile)
        launch(device_of(exec), tile_grid(m, k), fp8_block_cast_kernel<kElement, true, T>, cast, p, m, k);
      else
        launch(device_of(exec), tile_grid(m, k), fp8_block_cast_kernel<kElement, false, T>, cast, p, m, k);
    });
  });
  return true;
}

}  // namespace mantissa::cuda
