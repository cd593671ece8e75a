#include "ops/cuda/attention/hopper_boxes.cuh"

#include "base/error.h"
#include "tensor/cuda/check.h"

namespace mantissa::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function: nothing links to the driver.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  MANTISSA_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
  if (!found) fail(Exit::kUnavailable, "CUDA: the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(found);
}

}  // namespace

CUtensorMap boxes_of(const Bf16* x, int64_t tokens, int64_t heads, int64_t head_dim, int rows) {
  static const Encode encode = find_encode();
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(heads),
                              static_cast<cuuint64_t>(tokens)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(head_dim * 2), static_cast<cuuint64_t>(heads * head_dim * 2)};
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(rows)}, steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<Bf16*>(x), sizes, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(result == CUDA_SUCCESS, "attention: a tensor map of {} x {} x {} is refused: {}", tokens, heads, head_dim,
        static_cast<int>(result));
  return map;
}

}  // namespace mantissa::cuda
