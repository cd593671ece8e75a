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

cudaDataType_t type_of(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

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
      in_(type_of(key.in)),
      out_(type_of(key.out)),
      bias_(key.bias),
      accumulate_(key.accumulate),
      a_(make_layout(in_, key.a_transposed ? key.k : key.m, key.a_transposed ? key.m : key.k, key.a_stride)),
      b_(make_layout(in_, key.b_transposed ? key.k : key.n, key.b_transposed ? key.n : key.k,
                     key.b_transposed ? key.n : key.k)),
      c_(make_layout(out_, key.m, key.n, key.n)) {
  cublasLtMatmulDesc_t description = nullptr;
  MANTISSA_CUBLAS(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  description_.reset(description);
  // The library's first matrix is b: stored [N,K], it is seen as [K,N].
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
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
  const std::optional<cublasLtMatmulAlgo_t> algorithm = make_algorithm(handle_, parts, in_, out_);
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
  return cublasLtMatmul(handle_, description_.get(), &kOne, at.b, b_.get(), at.a, a_.get(),
                        accumulate_ ? &kOne : &kZero, at.c, c_.get(), at.c, c_.get(), &algorithm, at.workspace,
                        static_cast<size_t>(kGemmWorkspaceBytes), stream);
}

}  // namespace mantissa::cuda
