#include "ops/cuda/quantize/values_cast.h"

#include <cuda_fp8.h>

#include "base/philox.h"
#include "numerics/block_scale.h"
#include "numerics/hadamard.h"
#include "ops/cuda/common/reduce.cuh"
#include "ops/cuda/common/vec.cuh"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

// A tile of 128 x 128 in squares of 8 x 8, one a thread. A warp has 8 squares across and 4 down, so that blocks of 32
// along rows and along columns are within one.
constexpr int kSide = 128, kThreads = 256, kSquare = 8, kAcross = kSide / kSquare;
constexpr uint32_t kAll = 0xffffffffu;
constexpr int kNextAcross = 1, kNextDown = 8;  // lanes

enum class Kind { kMxfp8, kNvfp4 };

struct ValuesForm {
  Bf16* values;  // [outer, inner]; null: not wanted
  uint8_t* scales;
  const float* amax;  // NVFP4
  RandomKey key;      // its seed and step are those of the state
};
struct ValuesCast {
  ValuesForm rows, columns;
  const StepState* state;
  int64_t row_offset;
};

// How the elements of a block are scaled, rounded and scaled back.
struct BlockScale {
  float multiplier, decoded;
  uint8_t stored;
};

template <Kind kKind, DType kElement>
__device__ __forceinline__ BlockScale block_scale(float amax, const Nvfp4TensorScale& tensor) {
  if constexpr (kKind == Kind::kMxfp8) {
    const uint8_t e = mxfp8_exponent(amax, kElement == DType::kE4M3 ? kInverseMaxE4M3 : kInverseMaxE5M2);
    return {reciprocal_e8m0(e), decode_e8m0(e), e};
  } else {
    const uint8_t s = nvfp4_block_scale(amax, tensor.per_block);
    return {nvfp4_encode_scale(s, tensor.decode), decode_e4m3(s), s};
  }
}

__device__ __forceinline__ float with_sign_of(float magnitude, float x) {
  const uint32_t sign = x != x ? 0u : __float_as_uint(x) & 0x80000000u;  // NaN becomes +6
  return __uint_as_float(__float_as_uint(magnitude) | sign);
}

// The value of encode_e2m1(x): the grid's step is half the power of two below |x|, at least 0.5; adding 2^23 steps
// rounds.
__device__ __forceinline__ float round_e2m1(float x) {
  const float a = fminf(fabsf(x), kMaxE2M1);
  const uint32_t power = max(__float_as_uint(a) & 0x7f800000u, 0x3f800000u);
  const float magic = __uint_as_float(power + (22u << 23));
  return with_sign_of(__fsub_rn(__fadd_rn(a, magic), magic), x);
}

// The value of encode_e2m1_stochastic(x, random).
__device__ __forceinline__ float round_e2m1_stochastic(float x, uint32_t random) {
  const float a = fminf(fabsf(x), kMaxE2M1);
  const float normal = __uint_as_float((__float_as_uint(a) + (random << 14)) & 0xffc00000u);
  const float doubled = __fmul_rn(__fadd_rn(a, static_cast<float>(static_cast<int>(random)) * 0x1p-9f), 2.0f);
  const float subnormal = truncf(doubled) * 0.5f;
  return with_sign_of(a < 1.0f ? subnormal : normal, x);
}

// Two values as their codes stand for them.
template <DType kElement>
__device__ __forceinline__ float2 round_fp8(float a, float b) {
  constexpr __nv_fp8_interpretation_t kFp8 = kElement == DType::kE4M3 ? __NV_E4M3 : __NV_E5M2;
  const __nv_fp8x2_storage_t codes = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, kFp8);
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, kFp8)));
}

// Eight values of a block, rounded to the format and back, as BF16.
template <Kind kKind, DType kElement, bool kStochastic>
__device__ __forceinline__ uint4 values_of(const float (&v)[kSquare], const BlockScale& scale, uint2 random) {
  Wide out;
#pragma unroll
  for (int i = 0; i < kSquare; i += 2) {
    const float a = __fmul_rn(v[i], scale.multiplier), b = __fmul_rn(v[i + 1], scale.multiplier);
    float2 y;
    if constexpr (kKind == Kind::kMxfp8) {
      y = round_fp8<kElement>(a, b);
    } else if constexpr (kStochastic) {
      const uint32_t word = i < 4 ? random.x : random.y;
      y = make_float2(round_e2m1_stochastic(a, word >> (i % 4 * 8) & 0xffu),
                      round_e2m1_stochastic(b, word >> ((i + 1) % 4 * 8) & 0xffu));
    } else {
      y = make_float2(round_e2m1(a), round_e2m1(b));
    }
    out.x[i] = __fmul_rn(y.x, scale.decoded), out.x[i + 1] = __fmul_rn(y.y, scale.decoded);
  }
  return pack<Bf16>(out).raw;
}

// Random bytes of a square: row r, column c has byte c of random[r]. Element e = row * K + col has byte e % 16 of draw
// e / 16: two squares side by side share their draws, each makes every other one.
__device__ __forceinline__ void draw_square(const RandomKey& key, int64_t row, int64_t col, int64_t k,
                                            uint2 (&random)[kSquare]) {
  const bool right = col / kSquare % 2;
#pragma unroll
  for (int pair = 0; pair < kSquare / 2; ++pair) {
    const auto e = static_cast<uint64_t>((row + 2 * pair + right) * k + col);
    const Random4 d = draw(key, e / 16);
    const uint2 left_half = make_uint2(d.x[0], d.x[1]), right_half = make_uint2(d.x[2], d.x[3]);
    const uint2 mine = right ? right_half : left_half, theirs = right ? left_half : right_half;
    const uint2 got =
        make_uint2(__shfl_xor_sync(kAll, theirs.x, kNextAcross), __shfl_xor_sync(kAll, theirs.y, kNextAcross));
    random[2 * pair] = right ? got : mine;
    random[2 * pair + 1] = right ? mine : got;
  }
}

template <Kind kKind, DType kElement, bool kHadamard, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    values_cast_kernel(const __grid_constant__ ValuesCast cast, const Bf16* x, int64_t m, int64_t k) {
  constexpr int kBlock = kKind == Kind::kMxfp8 ? 32 : 16, kSquares = kBlock / kSquare;  // of a block
  __shared__ uint4 shared[kSide * kAcross];  // columns: eight rows of a column a place, places exchanged within it
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int across = warp % 2 * 8 + lane % 8, down = warp / 2 * 4 + lane / 8;
  const int64_t row0 = int64_t{blockIdx.y} * kSide, col0 = int64_t{blockIdx.x} * kSide;
  const int64_t row = row0 + down * kSquare, col = col0 + across * kSquare;
  const bool inside = row < m && col < k;
  Packed<Bf16> raw[kSquare] = {};
  if (inside) {
#pragma unroll
    for (int r = 0; r < kSquare; ++r) raw[r] = load_packed(x + (row + r) * k + col);
  }
  uint2 random[kSquare] = {};
  const StepState* state = cast.state;
  const int64_t first_row = kStochastic ? state->token_offset + cast.row_offset + row : 0;
  const auto draws = [&](RandomKey key) {
    key.seed = state->seed, key.step = state->step;
    draw_square(key, first_row, col, k, random);
  };

  if (cast.rows.values) {
    if constexpr (kStochastic) draws(cast.rows.key);
    Nvfp4TensorScale tensor{};
    if constexpr (kKind == Kind::kNvfp4) tensor = nvfp4_tensor_scale(*cast.rows.amax);
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const Wide v = widen(raw[r]);
      float amax = 0;
#pragma unroll
      for (int i = 0; i < kSquare; ++i) amax = larger_magnitude(amax, v.x[i]);
#pragma unroll
      for (int s = 1; s < kSquares; s *= 2) amax = fmaxf(amax, __shfl_xor_sync(kAll, amax, s * kNextAcross));
      const BlockScale scale = block_scale<kKind, kElement>(amax, tensor);
      const uint4 out = values_of<kKind, kElement, kStochastic>(v.x, scale, random[r]);
      if (!inside) continue;
      *reinterpret_cast<uint4*>(cast.rows.values + (row + r) * k + col) = out;
      if (across % kSquares == 0) cast.rows.scales[(row + r) * (k / kBlock) + col / kBlock] = scale.stored;
    }
  }
  if (!cast.columns.values) return;
  if constexpr (kStochastic) draws(cast.columns.key);
  Nvfp4TensorScale tensor{};
  if constexpr (kKind == Kind::kNvfp4) tensor = nvfp4_tensor_scale(*cast.columns.amax);
#pragma unroll
  for (int c = 0; c < kSquare; ++c) {
    float v[kSquare];
#pragma unroll
    for (int r = 0; r < kSquare; ++r) {
      const uint32_t words[4] = {raw[r].raw.x, raw[r].raw.y, raw[r].raw.z, raw[r].raw.w};
      v[r] = __uint_as_float(c % 2 ? words[c / 2] & 0xffff0000u : words[c / 2] << 16);
    }
    if constexpr (kHadamard) {
      const bool lower = down % 2;
#pragma unroll
      for (int r = 0; r < kSquare; ++r)
        v[r] = __fmul_rn(v[r], lower ? hadamard_factor(r + kSquare) : hadamard_factor(r));
#pragma unroll
      for (int span = 1; span < kSquare; span *= 2)
#pragma unroll
        for (int i = 0; i < kSquare / 2; ++i) {
          const int at = i / span * 2 * span + i % span;
          const float sum = __fadd_rn(v[at], v[at + span]);
          v[at + span] = __fsub_rn(v[at], v[at + span]);
          v[at] = sum;
        }
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
        const float other = __shfl_xor_sync(kAll, v[r], kNextDown);
        v[r] = __bfloat162float(__float2bfloat16_rn(lower ? __fsub_rn(other, v[r]) : __fadd_rn(v[r], other)));
      }
    }
    float amax = 0;
#pragma unroll
    for (int r = 0; r < kSquare; ++r) amax = larger_magnitude(amax, v[r]);
#pragma unroll
    for (int s = 1; s < kSquares; s *= 2) amax = fmaxf(amax, __shfl_xor_sync(kAll, amax, s * kNextDown));
    const BlockScale scale = block_scale<kKind, kElement>(amax, tensor);
    uint2 bytes{};
    if constexpr (kStochastic) {
#pragma unroll
      for (int r = 0; r < kSquare; ++r) {
        const uint32_t byte = (c < 4 ? random[r].x : random[r].y) >> (c % 4 * 8) & 0xffu;
        r < 4 ? bytes.x |= byte << (r * 8) : bytes.y |= byte << (r % 4 * 8);
      }
    }
    shared[(across * kSquare + c) * kAcross + (down ^ across % 8)] =
        values_of<kKind, kElement, kStochastic>(v, scale, bytes);
    if (inside && down % kSquares == 0) cast.columns.scales[(col + c) * (m / kBlock) + row / kBlock] = scale.stored;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kSide * kAcross; i += kThreads) {
    const int at = i / kAcross, place = i % kAcross;
    const int64_t to_col = col0 + at, to_row = row0 + place * kSquare;
    if (to_col < k && to_row < m)
      *reinterpret_cast<uint4*>(cast.columns.values + to_col * m + to_row) =
          shared[at * kAcross + (place ^ at / kSquare % 8)];
  }
}

// Two columns a thread, 16 rows at a time.
__global__ void __launch_bounds__(kThreads)
    both_amaxes_kernel(float* amax, float* rotated, const Bf16* x, int64_t m, int64_t k) {
  const int64_t pairs = k / 2, strips = m / kHadamardSize;
  float plain = 0, turned = 0;
  for (int64_t task = int64_t{blockIdx.x} * kThreads + threadIdx.x; task < pairs * strips;
       task += int64_t{gridDim.x} * kThreads) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(x + task / pairs * kHadamardSize * k) + task % pairs;
    uint32_t words[kHadamardSize];
#pragma unroll
    for (int r = 0; r < kHadamardSize; ++r) words[r] = from[r * pairs];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float v[kHadamardSize];
#pragma unroll
      for (int r = 0; r < kHadamardSize; ++r) {
        v[r] = __uint_as_float(side ? words[r] & 0xffff0000u : words[r] << 16);
        plain = larger_magnitude(plain, v[r]);
        v[r] = __fmul_rn(v[r], hadamard_factor(r));
      }
      hadamard_sums(v);
#pragma unroll
      for (int r = 0; r < kHadamardSize; ++r)
        turned = larger_magnitude(turned, __bfloat162float(__float2bfloat16_rn(v[r])));
    }
  }
  raise_amax(amax, plain);
  __syncthreads();
  raise_amax(rotated, turned);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Rows of values with the kind's block.
bool takes(const Quantized& q, ScaleRule rule, int block) {
  return !q || (q.format.values && q.format.rule == rule && q.format.blocking == Blocking::kRow &&
                q.format.block == block && aligned(q.data.data) && !q.raised);
}

}  // namespace

bool find_both_amaxes(Exec& exec, float* amax, float* rotated, const ConstTensor& x) {
  if (x.dtype != DType::kBF16 || x.rows() % kHadamardSize != 0 || x.cols() % 2 != 0 ||
      reinterpret_cast<uintptr_t>(x.data) % 4 != 0)
    return false;
  CudaDevice& device = device_of(exec);
  device.zero(amax, sizeof *amax);
  device.zero(rotated, sizeof *rotated);
  const int64_t tasks = x.cols() / 2 * (x.rows() / kHadamardSize);
  const int64_t blocks = std::min(ceil_div(tasks, kThreads), int64_t{6} * device.multiprocessors());
  launch(device, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, both_amaxes_kernel, amax, rotated,
         static_cast<const Bf16*>(x.data), x.rows(), x.cols());
  return true;
}

bool cast_values(Exec& exec, const Operand& x) {
  const Quantized& first = x.rowwise ? x.rowwise : x.columnwise;
  const bool nvfp4 = first.format.rule == ScaleRule::kNvfp4;
  const int block = nvfp4 ? 16 : 32;
  const int64_t m = x.high.rows(), k = x.high.cols();
  const ScaleRule rule = nvfp4 ? ScaleRule::kNvfp4 : ScaleRule::kE8M0;
  if (!first || !takes(x.rowwise, rule, block) || !takes(x.columnwise, rule, block) || x.high.dtype != DType::kBF16 ||
      !aligned(x.high.data) || m % block != 0 || k % block != 0 || ceil_div(m, kSide) >= 65536 ||
      x.rowwise.format.hadamard || !exec.state_address())
    return false;
  if (!nvfp4 && (x.rowwise.amax || x.columnwise.amax)) return false;
  if (x.rowwise && x.columnwise &&
      (x.rowwise.format.element != x.columnwise.format.element ||
       x.rowwise.format.stochastic != x.columnwise.format.stochastic))
    return false;
  const auto form = [&](const Quantized& q, DrawForm draws) -> ValuesForm {
    if (!q) return {};
    return {.values = static_cast<Bf16*>(q.data.data),
            .scales = q.scale_inv.as<uint8_t>(),
            .amax = q.amax,
            .key = {.tensor = x.tensor_id, .form = draws}};
  };
  const ValuesCast cast{.rows = form(x.rowwise, DrawForm::kRowwise),
                        .columns = form(x.columnwise, DrawForm::kColumnwise),
                        .state = exec.state_address(),
                        .row_offset = exec.row_offset};
  const Grid grid{.blocks = dim3(static_cast<unsigned>(ceil_div(k, kSide)), static_cast<unsigned>(ceil_div(m, kSide))),
                  .threads = kThreads};
  const auto run = [&](auto kernel) {
    launch(device_of(exec), grid, kernel, cast, static_cast<const Bf16*>(x.high.data), m, k);
  };
  if (!nvfp4) {
    first.format.element == DType::kE4M3 ? run(values_cast_kernel<Kind::kMxfp8, DType::kE4M3, false, false>)
                                         : run(values_cast_kernel<Kind::kMxfp8, DType::kE5M2, false, false>);
    return true;
  }
  const bool hadamard = x.columnwise.format.hadamard, stochastic = first.format.stochastic;
  if (hadamard)
    stochastic ? run(values_cast_kernel<Kind::kNvfp4, DType::kE2M1, true, true>)
               : run(values_cast_kernel<Kind::kNvfp4, DType::kE2M1, true, false>);
  else
    stochastic ? run(values_cast_kernel<Kind::kNvfp4, DType::kE2M1, false, true>)
               : run(values_cast_kernel<Kind::kNvfp4, DType::kE2M1, false, false>);
  return true;
}

}  // namespace mantissa::cuda
