#include "ops/cuda/gemm/product.h"

#include "tensor/cuda/check.h"

#define MANTISSA_CUBLAS(call) ::mantissa::cuda::check_cublas((call), #call)

namespace mantissa::cuda {
namespace {

Exit exit_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return Exit::kMemory;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_LICENSE_ERROR:
      return Exit::kUnavailable;
    default:
      return Exit::kInternal;
  }
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DType::kE5M2:
      return CUDA_R_8F_E5M2;
    case DType::kF16:
    case DType::kE2M1:
    case DType::kE8M0:
    case DType::kU8:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  fail(Exit::kInternal, "gemm: a product on the GPU is given {}, expected f32, bf16, e4m3 or e5m2", name_of(dtype));
}

cublasLtMatmulMatrixScale_t mode_of(GemmScale scale) {
  switch (scale) {
    case GemmScale::kTensor:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case GemmScale::kRow128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case GemmScale::kTile128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case GemmScale::kNone:
    case GemmScale::kRow32:
    case GemmScale::kTile32:
    case GemmScale::kRow16:
    case GemmScale::kTile16:
      break;
  }
  fail(Exit::kInternal, "gemm: a product on the GPU is given scales {}, expected tensor, 1x128 or 128x128",
       name_of(scale));
}

// A row-major matrix, column-major for the library.
cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  MANTISSA_CUBLAS(
      cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), stride));
  return layout;
}

template <class T>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  MANTISSA_CUBLAS(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  MANTISSA_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* what, const char* op) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail_in_library(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)), exit_of(status), op);
}

CublasHandle make_cublas_handle() {
  cublasLtHandle_t handle = nullptr;
  MANTISSA_CUBLAS(cublasLtCreate(&handle));
  return CublasHandle(handle);
}

Product::Product(cublasLtHandle_t handle, const GemmKey& key)
    : handle_(handle),
      a_type_(type_of(key.a)),
      b_type_(type_of(key.b)),
      out_(type_of(key.out)),
      scaled_(key.a_scale != GemmScale::kNone),
      bias_(key.bias),
      accumulate_(key.accumulate),
      alpha_(key.alpha),
      a_(make_layout(a_type_, key.a_transposed ? key.k : key.m, key.a_transposed ? key.m : key.k, key.a_stride)),
      b_(make_layout(b_type_, key.b_transposed ? key.k : key.n, key.b_transposed ? key.n : key.k,
                     key.b_transposed ? key.n : key.k)),
      c_(make_layout(out_, key.m, key.n, key.n)) {
  cublasLtMatmulDesc_t description = nullptr;
  MANTISSA_CUBLAS(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  description_.reset(description);
  // The library's first matrix is b: stored [N,K], it is seen as [K,N].
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (scaled_) {
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(key.b_scale));
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(key.a_scale));
    // Any aligned addresses while algorithms are asked for, as the bias.
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, reinterpret_cast<const void*>(uintptr_t{256}));
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, reinterpret_cast<const void*>(uintptr_t{256}));
    set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{key.fast});
  }
  if (alpha_) set(description, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  if (bias_) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out_);
    // Any aligned address while algorithms are asked for; enqueue() sets the real one.
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{256}));
  }
  cublasLtMatmulPreference_t preference = nullptr;
  MANTISSA_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  preference_.reset(preference);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kGemmWorkspaceBytes});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
}

std::vector<cublasLtMatmulAlgo_t> Product::guess(int count) const {
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, description_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                                     preference_.get(), count, results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i)
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<size_t>(i)].algo);
  return algorithms;
}

std::optional<cublasLtMatmulAlgo_t> Product::restore(const AlgorithmParts& parts) const {
  const std::optional<cublasLtMatmulAlgo_t> algorithm = make_algorithm(handle_, parts, b_type_, a_type_, out_);
  if (!algorithm) return std::nullopt;
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle_, description_.get(), b_.get(), a_.get(), c_.get(),
                                                        c_.get(), &*algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<size_t>(kGemmWorkspaceBytes))
    return std::nullopt;
  return algorithm;
}

cublasStatus_t Product::enqueue(const cublasLtMatmulAlgo_t& algorithm, const GemmAddresses& at, cudaStream_t stream) {
  constexpr float kOne = 1, kZero = 0;
  if (bias_) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  if (scaled_) {
    set(description_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, at.b_scale);
    set(description_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, at.a_scale);
  }
  const float* const alpha = alpha_ ? at.alpha : &kOne;
  const float* const beta = alpha_ ? at.alpha + 1 : accumulate_ ? &kOne : &kZero;
  return cublasLtMatmul(handle_, description_.get(), alpha, at.b, b_.get(), at.a, a_.get(), beta, at.c, c_.get(), at.c,
                        c_.get(), &algorithm, at.workspace, static_cast<size_t>(kGemmWorkspaceBytes), stream);
}

}  // namespace mantissa::cuda
