// What cuDNN wants to know of packed documents, in the device's memory.
#pragma once

#include <cstdint>

#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

struct PackedDocuments {
  const int32_t *lengths, *first_qkv, *first_out, *first_statistic;  // [slots], then [slots + 1] each
};

// Writes packed_bytes(slots) (scratch.h), the longest document first where there are at most 1024 slots: cuDNN's blocks
// start in this order, and long ones that start last run alone. From offsets[slots + 1], the first token of each
// document and T. The others are the document's first elements where a token has `qkv_cols`, `out_cols` and `heads` of
// them.
PackedDocuments write_packed(CudaDevice& device, int32_t* to, const int32_t* offsets, int64_t slots, int64_t qkv_cols,
                             int64_t out_cols, int64_t heads);

}  // namespace mantissa::cuda
