// attention.h on the GPU: cuDNN or the project's own kernels. BF16 takes cuDNN where it is there and has the shape, but
// neither in deterministic mode nor, on Hopper, for documents of different lengths (own_takes_lists in own.h);
// everything else takes the own kernels. The choice depends on the device, the environment and sizes, so a backward
// pass takes its forward's. MANTISSA_ATTENTION=cudnn or own forces one; Exit::kUnavailable where it cannot be had.
#pragma once

#include "ops/attention.h"

namespace mantissa::cuda {

void attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                   const HeadLayout& layout, float scale);
void attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                   const Segments& segments, const HeadLayout& layout, float scale);

}  // namespace mantissa::cuda
