#include "ops/cuda/gemm/algorithm.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mantissa::cuda {
namespace {

struct Part {
  const char* name;
  cublasLtMatmulAlgoConfigAttributes_t attribute;
  size_t bytes;
};
constexpr Part kParts[kAlgorithmParts] = {{"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},
                                          {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                                          {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                                          {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                                          {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                                          {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                                          {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                                          {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                                          {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};

}  // namespace

AlgorithmParts parts_of(const cublasLtMatmulAlgo_t& algorithm) {
  AlgorithmParts parts{};
  for (int i = 0; i < kAlgorithmParts; ++i) {
    uint32_t wide = 0;
    uint16_t narrow = 0;
    const bool is_wide = kParts[i].bytes == sizeof wide;
    size_t written = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, kParts[i].attribute, is_wide ? static_cast<void*>(&wide) : static_cast<void*>(&narrow),
        kParts[i].bytes, &written);
    check(status == CUBLAS_STATUS_SUCCESS, "gemm: cuBLASLt does not say an algorithm's {}", kParts[i].name);
    parts[static_cast<size_t>(i)] = is_wide ? wide : narrow;
  }
  return parts;
}

std::optional<cublasLtMatmulAlgo_t> make_algorithm(cublasLtHandle_t handle, const AlgorithmParts& parts,
                                                   cudaDataType_t first, cudaDataType_t second, cudaDataType_t out) {
  cublasLtMatmulAlgo_t algorithm{};
  if (cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, first, second, out, out,
                             static_cast<int>(parts[0]), &algorithm) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  for (int i = 1; i < kAlgorithmParts; ++i) {
    const uint32_t wide = parts[static_cast<size_t>(i)];
    const auto narrow = static_cast<uint16_t>(wide);
    const bool is_wide = kParts[i].bytes == sizeof wide;
    if (cublasLtMatmulAlgoConfigSetAttribute(
            &algorithm, kParts[i].attribute,
            is_wide ? static_cast<const void*>(&wide) : static_cast<const void*>(&narrow),
            kParts[i].bytes) != CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
  }
  return algorithm;
}

std::string words_of(const AlgorithmParts& parts) {
  std::string words;
  for (int i = 0; i < kAlgorithmParts; ++i)
    words += fmt::format("{}{} {}", i ? " " : "", kParts[i].name, parts[static_cast<size_t>(i)]);
  return words;
}

std::optional<AlgorithmParts> parse_algorithm(std::string_view words) {
  const std::vector<std::string> w = split(words, ' ');
  if (w.size() != 2 * kAlgorithmParts) return std::nullopt;
  AlgorithmParts parts{};
  for (size_t i = 0; i < kAlgorithmParts; ++i) {
    int64_t value = 0;
    const int64_t limit = kParts[i].bytes == 4 ? INT32_MAX : UINT16_MAX;
    if (w[2 * i] != kParts[i].name || !parse_int(w[2 * i + 1], value) || value < 0 || value > limit)
      return std::nullopt;
    parts[i] = static_cast<uint32_t>(value);
  }
  return parts;
}

}  // namespace mantissa::cuda
