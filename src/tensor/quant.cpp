#include "tensor/quant.h"

namespace mantissa {
namespace {

int64_t rounded_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

}  // namespace

DType data_dtype(const QuantFormat& format) { return format.values ? DType::kBF16 : format.element; }

DType scale_dtype(const QuantFormat& format) {
  switch (format.rule) {
    case ScaleRule::kE8M0:
      return DType::kE8M0;
    case ScaleRule::kNvfp4:
      return DType::kE4M3;
    case ScaleRule::kGiven:
    case ScaleRule::kCurrent:
    case ScaleRule::kCurrentPow2:
      break;
  }
  return DType::kF32;
}

Shape scale_shape(const QuantFormat& format, int64_t outer, int64_t inner) {
  if (format.blocking == Blocking::kTensor) return {1};
  const bool tiles = format.blocking == Blocking::kTile;
  const int64_t lines = tiles ? ceil_div(outer, format.block) : outer, blocks = ceil_div(inner, format.block);
  if (format.layout == ScaleLayout::kBlocks) return {lines, blocks};
  return tiles ? Shape{lines, rounded_up(blocks, 4)} : Shape{blocks, rounded_up(lines, 4)};
}

}  // namespace mantissa
