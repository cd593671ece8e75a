// Quantized copies of a matrix X[M,K] and the operand of a GEMM that carries them.
// "rowwise": blocks and scales run along K, as fprop and dgrad contract. "columnwise": along M, as wgrad contracts;
// columnwise data is stored transposed, [K,M], so that every GEMM contracts along its operands' last dimension.
#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace mantissa {

enum class ScaleRule : uint8_t {
  kGiven,        // FP32 scale known before the cast (delayed scaling)
  kCurrent,      // FP32, FPMAX / amax of the block
  kCurrentPow2,  // the same with the mantissa cleared (rounded down to a power of two)
  kE8M0,         // power of two, exponent rounded up (OCP microscaling as TransformerEngine computes it)
  kNvfp4,        // E4M3 block scale times one FP32 tensor scale
};

enum class Blocking : uint8_t {
  kTensor,  // one scale
  kRow,     // 1 x block along the contraction
  kTile,    // block x block; the transposed copy carries the same codes
};

// Where the FP32 scale of a block of 128 is stored. Line: a row of `data`, or a row of tiles.
enum class ScaleLayout : uint8_t {
  kBlocks,   // [lines, blocks]
  kLibrary,  // as cuBLASLt reads them: kRow [blocks, lines rounded up to 4], kTile [lines, blocks rounded up to 4]
};

// How one quantized copy is made and stored.
struct QuantFormat {
  DType element = DType::kE4M3;
  ScaleRule rule = ScaleRule::kCurrent;
  Blocking blocking = Blocking::kTensor;
  int block = 0;            // 128, 32 or 16; 0 with Blocking::kTensor
  bool hadamard = false;    // 16-point random Hadamard transform along M first (columnwise copies only; BF16 source)
  bool stochastic = false;  // stochastic rounding (E2M1 only), else to nearest even
  ScaleLayout layout = ScaleLayout::kBlocks;
  bool values = false;  // `data` holds no codes: in BF16, what each stands for but for the tensor's scale (GPU)

  bool operator==(const QuantFormat&) const = default;
};

// One quantized copy. For outer x inner data (rowwise M x K, columnwise K x M) the scales are F32 scale_inv, E8M0 or
// E4M3 bytes: [1] for kTensor, [outer, ceil(inner/block)] for kRow, [ceil(outer/block), ceil(inner/block)] for kTile;
// ScaleLayout::kLibrary pads and turns them.
struct Quantized {
  QuantFormat format;
  Tensor data;            // [outer, inner]; E2M1 packs two codes a byte along inner; BF16 where format.values
  Tensor scale_inv;       // what dequantization multiplies by
  float* amax = nullptr;  // [1] written: amax of the source, in FP32 (kGiven: of the unscaled value; hadamard: rotated)
  const float* scale = nullptr;  // [1] read by kGiven: multiplies before the cast
  float* raised = nullptr;       // [1] where set, Pass::kForward raises it to the amax of the source

  explicit operator bool() const { return static_cast<bool>(data); }
};

// One GEMM operand in every form asked for. A producer (norm, activation, attention) writes `high` and then every
// quantized form that is present.
struct Operand {
  Tensor high;                     // [M,K] BF16, or F32 where a recipe quantizes the unrounded value
  Quantized rowwise;               // data [M,K]
  Quantized columnwise;            // data [K,M]
  float* producer_amax = nullptr;  // [1] if set, the producer writes amax of its FP32 value here and the cast uses it
  bool high_read = true;           // `high` is read behind the producer; else one that fills all forms may leave it out
  uint32_t tensor_id = 0;          // names the tensor in stochastic rounding and statistics
};

// What a recipe wants a producer to write for one tensor; allocate_operand() turns it into memory.
struct OperandSpec {
  std::optional<QuantFormat> rowwise, columnwise;
  bool high = true;                   // the high-precision value is read by a GEMM itself (bf16, fp32 recipes)
  bool unrounded = false;             // the producer hands over FP32 values (delayed scaling in fused producers)
  bool amax_before_rounding = false;  // amax of the FP32 value, data from the BF16 one (docs/numerics.md 7)
};

// ceil(a / b) for positive integers.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Dtype of a copy's data, dtype and shape of its scales.
DType data_dtype(const QuantFormat& format);
DType scale_dtype(const QuantFormat& format);
Shape scale_shape(const QuantFormat& format, int64_t outer, int64_t inner);

}  // namespace mantissa
