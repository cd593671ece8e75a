#include "ops/cuda/attention/packed.h"

#include <algorithm>

#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSorted = 1024;  // every slot looks at every other

__global__ void __launch_bounds__(kThreads)
    attention_cudnn_offsets_kernel(int32_t* lengths, int32_t* first_qkv, int32_t* first_out, int32_t* first_statistic,
                                   const int32_t* offsets, int slots, int qkv_cols, int out_cols, int heads) {
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i <= slots;
       i += static_cast<int>(gridDim.x) * kThreads) {
    const int first = offsets[i];
    int place = i;
    if (i < slots) {
      const int length = offsets[i + 1] - first;
      if (slots <= kMostSorted) {
        place = 0;
        int begin = offsets[0];
#pragma unroll 8
        for (int k = 0; k < slots; ++k) {
          const int end = offsets[k + 1], other = end - begin;
          place += other > length || (other == length && k < i);
          begin = end;
        }
      }
      lengths[place] = length;
    }
    first_qkv[place] = first * qkv_cols;
    first_out[place] = first * out_cols;
    first_statistic[place] = first * heads;
  }
}

}  // namespace

PackedDocuments write_packed(CudaDevice& device, int32_t* to, const int32_t* offsets, int64_t slots, int64_t qkv_cols,
                             int64_t out_cols, int64_t heads) {
  if (slots > kMostSorted)
    device.say_slow("attention",
                    "more than 1024 document slots: cuDNN takes documents in their order, not the longest first");
  int32_t* const lengths = to;
  int32_t* const first_qkv = lengths + slots;
  int32_t* const first_out = first_qkv + slots + 1;
  int32_t* const first_statistic = first_out + slots + 1;
  const Grid grid{.blocks = static_cast<unsigned>(std::min<int64_t>(slots / kThreads + 1, device.multiprocessors())),
                  .threads = kThreads};
  launch(device, grid, attention_cudnn_offsets_kernel, lengths, first_qkv, first_out, first_statistic, offsets, slots,
         qkv_cols, out_cols, heads);
  return {lengths, first_qkv, first_out, first_statistic};
}

}  // namespace mantissa::cuda
