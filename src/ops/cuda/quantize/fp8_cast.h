// The casts that native FP8 recipes spend their time in, at the speed of memory: the bytes of quantize.cu.
#pragma once

#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa::cuda {

// Fills the forms of x from x.high in one pass where they are FP8 codes of one format with one scale a tensor, or of
// blocks of 128 in the library's layout. False: not such forms, or sides that are no multiples of 16; nothing is done.
// `amax` [1]: of the tensor, where its scale comes from it.
bool cast_fp8(Exec& exec, const Operand& x, const float* amax);

}  // namespace mantissa::cuda
