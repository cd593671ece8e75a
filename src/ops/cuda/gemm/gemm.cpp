#include "ops/gemm.h"

#include <algorithm>

#include "ops/cuda/gemm/finish.h"
#include "ops/cuda/gemm/gemms.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/libraries.h"

namespace mantissa::cuda {
namespace {

// The shared scratch: the library's workspace, a product in F32, a factor of a product, a bias in c's dtype. Behind it
// lies what other ops need; a search writes there.
constexpr int64_t kBiasBytes = int64_t{1} << 20, kAlphaBytes = 256;
constexpr int64_t kProductBytes = kGemmScratchBytes - kGemmWorkspaceBytes - kAlphaBytes - kBiasBytes;
static_assert(kProductBytes > 0);

bool has_bias(const GemmDesc& d) { return static_cast<bool>(d.bias); }

bool is_codes(const GemmSide& side) { return side.scale && !side.scale->format.values; }

// NVFP4 values lack their tensors' scales.
bool has_alpha(const GemmDesc& d) {
  return d.a.scale && d.a.scale->format.values && d.a.scale->format.rule == ScaleRule::kNvfp4;
}

GemmKey key_of(const GemmDesc& d) {
  GemmKey key;
  key.a_transposed = d.a.transposed, key.b_transposed = d.b.transposed;
  key.a = d.a.data.dtype, key.b = d.b.data.dtype, key.out = d.c.dtype;
  if (is_codes(d.a)) key.a_scale = scale_of(d.a), key.b_scale = scale_of(d.b);
  key.alpha = has_alpha(d);
  key.fast = d.fast_accumulation && key.a_scale == GemmScale::kTensor && key.b_scale == GemmScale::kTensor;
  key.bias = has_bias(d), key.accumulate = d.beta != 0;
  key.m = d.c.rows(), key.n = d.c.cols(), key.k = d.a.transposed ? d.a.data.rows() : d.a.data.cols();
  key.a_stride = key.dense_stride();
  key.align_a = alignment_of(d.a.data.data), key.align_b = alignment_of(d.b.data.data);
  key.align_c = alignment_of(d.c.data);
  return key;
}

// cuBLASLt multiplies F32 sides to F32 only.
bool fits_one_call(const GemmDesc& d) { return !(d.a.data.dtype == DType::kF32 && d.c.dtype == DType::kBF16); }

std::byte* scratch_of(const Exec& exec) {
  check(exec.shared_scratch_bytes() >= kGemmScratchBytes, "gemm: the scratch holds {} bytes, {} are needed",
        exec.shared_scratch_bytes(), kGemmScratchBytes);
  return exec.shared_scratch();
}

// The bias as the epilogue takes it: in c's dtype and aligned.
const void* ready_bias(Exec& exec, const GemmDesc& d, std::byte* room) {
  if (!has_bias(d)) return nullptr;
  if (d.bias.dtype == d.c.dtype && alignment_of(d.bias.data) == kGemmAlignment) return d.bias.data;
  const Tensor bias(room, d.c.dtype, {d.bias.count()});
  check(bias.bytes() <= kBiasBytes, "gemm: bias {} takes {} bytes of scratch, {} are there", d.bias, bias.bytes(),
        kBiasBytes);
  copy_bias(device_of(exec), bias, d.bias);
  return bias.data;
}

// The factor of the product, then that of c.
const float* ready_alpha(Exec& exec, const GemmDesc& d, std::byte* room) {
  if (!has_alpha(d)) return nullptr;
  auto* alpha = reinterpret_cast<float*>(room);
  nvfp4_alpha(device_of(exec), alpha, d.a.scale->amax, d.b.scale->amax, d.beta);
  return alpha;
}

// c BF16 of F32 sides: rows of the product in F32 scratch, then rounded into c.
void multiply_through_scratch(Exec& exec, const GemmDesc& d, std::byte* scratch, const SearchRoom& room) {
  const int64_t m = d.c.rows(), n = d.c.cols(), row_bytes = bytes_of(DType::kF32, n);
  const int64_t rows_at_once = std::min(m, kProductBytes / row_bytes);
  check(rows_at_once > 0, "gemm: a row of c {} takes {} bytes of scratch in f32, {} are there", d.c, row_bytes,
        kProductBytes);
  std::byte* const product = scratch + kGemmWorkspaceBytes;
  for (int64_t row = 0; row < m; row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, m - row);
    GemmKey key = key_of(d);
    const int64_t first = d.a.transposed ? row : row * key.k;
    GemmAddresses at{.a = static_cast<const std::byte*>(d.a.data.data) + bytes_of(key.a, first),
                     .b = d.b.data.data,
                     .c = product,
                     .workspace = scratch};
    key.m = rows, key.out = DType::kF32, key.bias = key.accumulate = false;
    key.align_a = alignment_of(at.a), key.align_c = alignment_of(at.c);
    gemms_of(device_of(exec)).multiply(key, at, room);
    const Tensor part(static_cast<std::byte*>(d.c.data) + bytes_of(d.c.dtype, row * n), d.c.dtype, {rows, n});
    finish_product(device_of(exec), part, ConstTensor(product, DType::kF32, {rows, n}), d.bias, d.beta != 0);
  }
}

// As profiles show a product, by the sides that are transposed.
constexpr const char* kNames[] = {"gemm fprop", "gemm dgrad", "gemm left", "gemm wgrad"};

}  // namespace

void gemm(Exec& exec, const GemmDesc& desc) {
  const OpScope scope(exec, kNames[2 * desc.a.transposed + desc.b.transposed]);
  if (desc.c.count() == 0) return;
  std::byte* const scratch = scratch_of(exec);
  // Evaluation and generation meet shapes that are not worth a search, a prompt's length for one.
  const SearchRoom room{.allowed = exec.pass != Pass::kEvaluate,
                        .spare = scratch + kGemmScratchBytes,
                        .bytes = exec.shared_scratch_bytes() - kGemmScratchBytes};
  if (!fits_one_call(desc)) return multiply_through_scratch(exec, desc, scratch, room);
  const GemmAddresses at{.a = desc.a.data.data,
                         .b = desc.b.data.data,
                         .a_scale = is_codes(desc.a) ? desc.a.scale->scale_inv.data : nullptr,
                         .b_scale = is_codes(desc.b) ? desc.b.scale->scale_inv.data : nullptr,
                         .c = desc.c.data,
                         .bias = ready_bias(exec, desc, scratch + kGemmScratchBytes - kBiasBytes),
                         .alpha = ready_alpha(exec, desc, scratch + kGemmScratchBytes - kBiasBytes - kAlphaBytes),
                         .workspace = scratch};
  gemms_of(device_of(exec)).multiply(key_of(desc), at, room);
}

GemmChoice explain_gemm(const Exec& exec, const GemmDesc& desc) {
  GemmKey key = key_of(desc);
  const bool whole = fits_one_call(desc);
  if (!whole) key.out = DType::kF32, key.bias = key.accumulate = false, key.align_c = kGemmAlignment;
  const std::string words = gemms_of(device_of(exec)).explain(key);
  return {.taken = "cublasLt " + words + (whole ? "" : ", in parts through f32 scratch"), .refused = {}};
}

}  // namespace mantissa::cuda
