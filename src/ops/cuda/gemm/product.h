// One product as cuBLASLt sees it. Row-major [R,C] is column-major [C,R], so the library computes cᵀ = b · aᵀ and reads
// every layout in place.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "ops/cuda/gemm/algorithm.h"
#include "ops/cuda/gemm/key.h"

namespace mantissa::cuda {

// Bytes of workspace that an algorithm may take: what NVIDIA recommends for Hopper (cuBLAS, "cublasSetWorkspace").
constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

// Throws unless `status` is success, as check_cuda() does.
void check_cublas(cublasStatus_t status, const char* what, const char* op = nullptr);

template <auto destroy>
struct CublasFree {
  template <class T>
  void operator()(T* p) const {
    destroy(p);
  }
};
template <class Handle, auto destroy>
using CublasPtr = std::unique_ptr<std::remove_pointer_t<Handle>, CublasFree<destroy>>;

using CublasHandle = CublasPtr<cublasLtHandle_t, cublasLtDestroy>;
CublasHandle make_cublas_handle();

// Addresses on the device.
struct GemmAddresses {
  const void *a = nullptr, *b = nullptr;
  const void *a_scale = nullptr, *b_scale = nullptr;  // of codes: what dequantization multiplies by
  void* c = nullptr;
  const void* bias = nullptr;
  const float* alpha = nullptr;  // GemmKey::alpha: the factor, then what c is multiplied by (0 or 1)
  void* workspace = nullptr;     // kGemmWorkspaceBytes
};

class Product {
 public:
  Product(cublasLtHandle_t handle, const GemmKey& key);

  // At most `count` algorithms, the library's first choice first; none where it has none. Their sums have one fixed
  // order, in FP32 until c is rounded: a split along K is reduced in FP32 in a step of its own.
  std::vector<cublasLtMatmulAlgo_t> guess(int count) const;
  // The algorithm of the parts; none where the library refuses it for this product.
  std::optional<cublasLtMatmulAlgo_t> restore(const AlgorithmParts& parts) const;
  cublasStatus_t enqueue(const cublasLtMatmulAlgo_t& algorithm, const GemmAddresses& at, cudaStream_t stream);

 private:
  using Description = CublasPtr<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = CublasPtr<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = CublasPtr<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  cublasLtHandle_t handle_;
  cudaDataType_t a_type_, b_type_, out_;
  bool scaled_, bias_, accumulate_, alpha_;
  Description description_;
  Layout a_, b_, c_;
  Preference preference_;
};

}  // namespace mantissa::cuda
