// Matrix products over plain and quantized operands.
#pragma once

#include <string>
#include <vector>

#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa {

// One side of a product, seen as [outer, K]. Plain: F32 or BF16. Quantized: codes with `scale`, which also says where
// the scales enter (docs/numerics.md, "Emulation").
struct GemmSide {
  ConstTensor data;                  // [outer,K]; [K,outer] if transposed
  bool transposed = false;           // the contraction runs along data's first dimension
  const Quantized* scale = nullptr;  // set for a quantized side; `data` is then its codes

  static GemmSide plain(ConstTensor data, bool transposed = false) { return {data, transposed, nullptr}; }
  static GemmSide quantized(const Quantized& q, bool transposed = false) { return {q.data, transposed, &q}; }
};

// How the codes of one side are scaled.
enum class GemmScale : uint8_t {
  kNone,     // F32 or BF16, no codes
  kTensor,   // one FP32 scale
  kRow128,   // FP32, one a row and 128 of K
  kTile128,  // FP32, one a tile of 128 x 128
  kRow32,    // E8M0, one a row and 32 of K
  kTile32,   // E8M0, one a tile of 32 x 32
  kRow16,    // E4M3 within one FP32 scale, one a row and 16 of K
  kTile16,   // the same a tile of 16 x 16
};
const char* name_of(GemmScale scale);  // "none", "tensor", "1x128", "128x128", ...
// Exit::kInternal for a format that no product takes.
GemmScale scale_of(const GemmSide& side);

// c[M,N] = a[M,K] · b[N,K]ᵀ + bias[N] + beta c. Products of F32 sides run in FP32; BF16 and quantized sides run in BF16
// with FP32 accumulation, each output summed in one fixed order. c is F32 or BF16, rounded once; bias has c's or F32
// dtype. On a GPU both sides are F32, both BF16 (or values, QuantFormat), or both FP8 codes that run along rows with
// one scale a tensor or with blocks of 128, not both E5M2 nor both tiles: these are multiplied as they are. Anything
// else is Exit::kUnavailable; there an F32 bias is rounded to a BF16 c's dtype before it is added.
struct GemmDesc {
  GemmSide a, b;
  Tensor c;
  ConstTensor bias;  // optional [N]
  float beta = 0;    // 0 or 1
  // FP8 sides with one scale each may be summed in fewer bits than FP32 has where tensor cores are faster so; whatever
  // has no such way sums in FP32.
  bool fast_accumulation = false;
};

// GPU: the first call for a shape may take a second, while it times algorithms on these values (DeviceOptions::search);
// not in a capture, nor where exec.pass is kEvaluate.
void gemm(Exec& exec, const GemmDesc& desc);

// GPU scratch that gemm() takes at most.
constexpr int64_t kGemmScratchBytes = int64_t{64} << 20;

// The candidate that gemm() takes for `desc`, and why each better-placed one refused: one line each. GPU: the
// algorithm, with its numbers.
struct GemmChoice {
  std::string taken;
  std::vector<std::string> refused;
};
GemmChoice explain_gemm(const Exec& exec, const GemmDesc& desc);

// GFLOP/s that gemm() reaches on `shape`-like BF16 or F32 work; measured for about `seconds`. On a GPU
// the scratch grows to what gemm() takes.
double measure_gemm_rate(Exec& exec, DType dtype, int64_t m, int64_t n, int64_t k, double seconds);

}  // namespace mantissa
