// An algorithm of cuBLASLt as numbers that outlive the process: with the same version of the library they give the same
// kernel again.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa::cuda {

constexpr int kAlgorithmParts = 9;
// The values of cublasLtMatmulAlgoConfigAttributes_t: algorithm, tile, stages, split, reduction, swizzle, custom,
// inner, cluster; their meaning is the library's.
using AlgorithmParts = std::array<uint32_t, kAlgorithmParts>;

AlgorithmParts parts_of(const cublasLtMatmulAlgo_t& algorithm);
// Of a product of the library's sides `first` and `second` to `out`; none where the library does not know it.
std::optional<cublasLtMatmulAlgo_t> make_algorithm(cublasLtHandle_t handle, const AlgorithmParts& parts,
                                                   cudaDataType_t first, cudaDataType_t second, cudaDataType_t out);

// "algorithm 66 tile 818 stages 36 split 1 ..."
std::string words_of(const AlgorithmParts& parts);
std::optional<AlgorithmParts> parse_algorithm(std::string_view words);

}  // namespace mantissa::cuda
