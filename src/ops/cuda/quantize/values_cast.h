// The casts that emulated recipes spend their time in: values that stand for MXFP8 and NVFP4 codes, those of
// quantize.cu.
#pragma once

#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa::cuda {

// Fills the forms of x from x.high where they are values of rows of 1x32 (MXFP8) or 1x16 (NVFP4) of a BF16 source whose
// sides are multiples of the block. False: they are not; nothing is done. NVFP4 reads the amaxes of its forms, which
// are there.
bool cast_values(Exec& exec, const Operand& x);

// The amax of x[M,K] and of x rotated down each 16 rows, in one pass: what NVFP4's two copies scale by. False: x is not
// BF16 or its sides are no multiples of 16; nothing is done.
bool find_both_amaxes(Exec& exec, float* amax, float* rotated, const ConstTensor& x);

}  // namespace mantissa::cuda
