#include "ops/gemm_problem.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "numerics/block_scale.h"
#include "ops/cpu/gemm/decode.h"

namespace mantissa {
namespace {

enum class Recipe { kPlain, kTensor, kInside, kBlock, kNvfp4 };

const char* name_of(Recipe recipe) {
  switch (recipe) {
    case Recipe::kPlain:
      return "plain";
    case Recipe::kTensor:
      return "one scale a tensor";
    case Recipe::kInside:
      return "power-of-two block scales";
    case Recipe::kBlock:
      return "FP32 block scales";
    case Recipe::kNvfp4:
      return "NVFP4 scales";
  }
  return "?";
}

Recipe recipe_of(const GemmSide& side) {
  if (!side.scale) return Recipe::kPlain;
  const QuantFormat& format = side.scale->format;
  if (format.rule == ScaleRule::kNvfp4) return Recipe::kNvfp4;
  if (format.blocking == Blocking::kTensor) return Recipe::kTensor;
  if (format.rule == ScaleRule::kE8M0 || format.rule == ScaleRule::kCurrentPow2) return Recipe::kInside;
  return Recipe::kBlock;
}

GemmOperand operand_of(const char* name, const GemmSide& side, Recipe recipe) {
  const ConstTensor& data = side.data;
  check(static_cast<bool>(data), "gemm: {} has no data", name);
  const int64_t rows = data.rows(), cols = data.cols();
  GemmOperand x{.data = data.data,
                .dtype = data.dtype,
                .transposed = side.transposed,
                .outer = side.transposed ? cols : rows,
                .k = side.transposed ? rows : cols,
                .stride = cols,
                .scales = nullptr,
                .scale_dtype = DType::kF32,
                .scale_row_bits = 0,
                .scale_col_bits = 0,
                .scale_stride = 0};
  if (!side.scale) {
    check(data.dtype == DType::kF32 || data.dtype == DType::kBF16,
          "gemm: {} is {}, expected f32 or bf16 of a plain side", name, data);
    return x;
  }
  const Quantized& q = *side.scale;
  check(static_cast<bool>(q.scale_inv), "gemm: {} has no scale_inv", name);
  if (q.format.values) {
    check(data.dtype == DType::kBF16, "gemm: {} is {}, expected bf16 of values", name, data);
    return x;
  }
  const bool codes = data.dtype == DType::kE4M3 || data.dtype == DType::kE5M2 || data.dtype == DType::kE2M1;
  check(codes && data.dtype == q.format.element, "gemm: {} is {}, expected codes of {}", name, data,
        mantissa::name_of(q.format.element));
  check(data.dtype != DType::kE2M1 || cols % 2 == 0,
        "gemm: {} is {}, expected an even number of columns (two codes a byte)", name, data);
  if (recipe == Recipe::kTensor) return x;
  check(!side.transposed || q.format.blocking == Blocking::kTile,
        "gemm: {} is transposed with scales along the other dimension, expected tiles or one scale", name);
  const int64_t block = q.format.block;
  check(block >= 16 && std::has_single_bit(static_cast<uint64_t>(block)),
        "gemm: {} has blocks of {}, expected a power of two from 16", name, block);
  check(recipe != Recipe::kBlock || block == 128, "gemm: {} has FP32 scales of blocks of {}, expected 128", name,
        block);
  x.scales = q.scale_inv.data, x.scale_dtype = q.scale_inv.dtype;
  const bool tiles = q.format.blocking == Blocking::kTile;
  x.scale_col_bits = std::countr_zero(static_cast<uint64_t>(block)), x.scale_row_bits = tiles ? x.scale_col_bits : 0;
  x.scale_stride = ceil_div(cols, block);
  const Shape scales = scale_shape(q.format, rows, cols);
  check(q.scale_inv.shape == scales, "gemm: {} has scales {}, expected {} for {}", name, q.scale_inv, scales, data);
  return x;
}

// True if a product of block scale and code in this block is neither zero nor a normal BF16 number.
bool block_leaves_bf16(const GemmOperand& x, float scale, int64_t row0, int64_t rows, int64_t col0, int64_t cols) {
  for (int64_t r = row0; r < row0 + rows; ++r)
    for (int64_t c = col0; c < col0 + cols; ++c) {
      const float code = element_at(x.data, x.dtype, r * x.stride + c);
      const float value = std::fabs(code * scale);
      if (code != 0 && !(value >= 0x1p-126f && value <= 0x1.fep127f)) return true;
    }
  return false;
}

// Scales within these bounds keep every code normal: codes lie in [2^-16, 57344].
constexpr float kSafeLow = 0x1p-110f, kSafeHigh = 0x1p111f;

// True if all E8M0 scales lie within the bounds: the usual case, at the speed of memory.
bool all_safe(const uint8_t* scales, int64_t n) {
  uint8_t least = 255, greatest = 0;
#pragma omp simd reduction(min : least) reduction(max : greatest)
  for (int64_t i = 0; i < n; ++i) {
    least = scales[i] < least ? scales[i] : least;
    greatest = scales[i] > greatest ? scales[i] : greatest;
  }
  return least >= 127 - 110 && greatest <= 127 + 111;
}

bool leaves_bf16(const GemmOperand& x) {
  const int64_t rows = x.transposed ? x.k : x.outer, cols = x.stride;
  const int64_t block_rows = int64_t{1} << x.scale_row_bits, block_cols = int64_t{1} << x.scale_col_bits;
  const int64_t blocks = ceil_div(rows, block_rows) * x.scale_stride;
  if (x.scale_dtype == DType::kE8M0 && all_safe(static_cast<const uint8_t*>(x.scales), blocks)) return false;
  for (int64_t i = 0; i < blocks; ++i) {
    const float scale = element_at(x.scales, x.scale_dtype, i);
    if (scale >= kSafeLow && scale <= kSafeHigh) continue;
    const int64_t row0 = i / x.scale_stride * block_rows, col0 = i % x.scale_stride * block_cols;
    if (block_leaves_bf16(x, scale, row0, std::min(block_rows, rows - row0), col0, std::min(block_cols, cols - col0)))
      return true;
  }
  return false;
}

float alpha_of(const GemmDesc& desc, Recipe recipe) {
  if (recipe == Recipe::kTensor) return desc.a.scale->scale_inv.as<float>()[0] * desc.b.scale->scale_inv.as<float>()[0];
  if (recipe != Recipe::kNvfp4) return 1;
  check(desc.a.scale->amax && desc.b.scale->amax, "gemm: a quantized side has no amax, which NVFP4 scales by");
  return *desc.a.scale->amax * *desc.b.scale->amax * kNvfp4Factor;
}

}  // namespace

GemmProblem describe(const GemmDesc& desc) {
  const Recipe recipe = recipe_of(desc.a), other = recipe_of(desc.b);
  check(recipe == other, "gemm: a has {}, b has {}, expected the same", name_of(recipe), name_of(other));
  const bool quantized = recipe != Recipe::kPlain;
  check(!quantized || desc.a.scale->format.hadamard == desc.b.scale->format.hadamard,
        "gemm: one side is rotated and the other is not");
  GemmProblem p{};
  p.a = operand_of("a", desc.a, recipe);
  p.b = operand_of("b", desc.b, recipe);
  p.m = p.a.outer, p.n = p.b.outer, p.k = p.a.k;
  check(p.b.k == p.k, "gemm: a is {} with K = {}, b is {} with K = {}", desc.a.data, p.k, desc.b.data, p.b.k);
  const Tensor& c = desc.c;
  check(
      static_cast<bool>(c) && (c.dtype == DType::kF32 || c.dtype == DType::kBF16) && c.rows() == p.m && c.cols() == p.n,
      "gemm: c is {}, expected f32 or bf16 [{},{}]", c, p.m, p.n);
  check(desc.beta == 0 || desc.beta == 1, "gemm: beta is {}, expected 0 or 1", desc.beta);
  p.c = c.data, p.c_dtype = c.dtype, p.accumulate = desc.beta == 1;
  if (desc.bias) {
    check((desc.bias.dtype == DType::kF32 || desc.bias.dtype == c.dtype) && desc.bias.count() == p.n,
          "gemm: bias is {}, expected f32 or {} [{}]", desc.bias, mantissa::name_of(c.dtype), p.n);
    p.bias = desc.bias.data, p.bias_dtype = desc.bias.dtype;
  }
  p.alpha = 1;
  p.math = p.a.dtype == DType::kF32 || p.b.dtype == DType::kF32 ? GemmMath::kF32 : GemmMath::kBF16;
  p.scaling = recipe == Recipe::kBlock                                ? GemmScaling::kBlock
              : recipe == Recipe::kInside || recipe == Recipe::kNvfp4 ? GemmScaling::kInside
                                                                      : GemmScaling::kNone;
  return p;
}

GemmProblem normalise(const GemmDesc& desc) {
  for (const GemmSide* side : {&desc.a, &desc.b})
    check(!side->scale || (!side->scale->format.values && side->scale->format.layout == ScaleLayout::kBlocks),
          "gemm: {} is stored as a GPU's products take it", side->data);
  GemmProblem p = describe(desc);
  const Recipe recipe = recipe_of(desc.a);
  p.alpha = alpha_of(desc, recipe);
  if (recipe == Recipe::kInside && (leaves_bf16(p.a) || leaves_bf16(p.b))) p.math = GemmMath::kF32;
  return p;
}

const char* name_of(GemmScale scale) {
  switch (scale) {
    case GemmScale::kNone:
      return "none";
    case GemmScale::kTensor:
      return "tensor";
    case GemmScale::kRow128:
      return "1x128";
    case GemmScale::kTile128:
      return "128x128";
    case GemmScale::kRow32:
      return "1x32";
    case GemmScale::kTile32:
      return "32x32";
    case GemmScale::kRow16:
      return "1x16";
    case GemmScale::kTile16:
      return "16x16";
  }
  return "?";
}

GemmScale scale_of(const GemmSide& side) {
  if (!side.scale) return GemmScale::kNone;
  const QuantFormat& f = side.scale->format;
  if (f.blocking == Blocking::kTensor) return GemmScale::kTensor;
  const bool tiles = f.blocking == Blocking::kTile;
  switch (f.rule) {
    case ScaleRule::kGiven:
    case ScaleRule::kCurrent:
    case ScaleRule::kCurrentPow2:
      if (f.block == 128) return tiles ? GemmScale::kTile128 : GemmScale::kRow128;
      break;
    case ScaleRule::kE8M0:
      if (f.block == 32) return tiles ? GemmScale::kTile32 : GemmScale::kRow32;
      break;
    case ScaleRule::kNvfp4:
      if (f.block == 16) return tiles ? GemmScale::kTile16 : GemmScale::kRow16;
      break;
  }
  fail(Exit::kInternal, "gemm: no product takes {} with blocks of {}", side.data, f.block);
}

}  // namespace mantissa
