// Casts into quantized forms, the way back, and their error.
#pragma once

#include "numerics/error_metrics.h"
#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa {

// Fills every quantized form present in x (none: nothing happens) from x.high [M,K] (BF16 or F32), exactly as
// docs/numerics.md says: scales, codes, amax. x.producer_amax, if set, replaces the amax of `high` (per-tensor
// formats). Stochastic rounding draws by element (exec.state.token_offset + exec.row_offset + m) * K + k; for weights
// both are 0. Throws Exit::kUsage for a Hadamard transform of F32 data or of M not a multiple of 16.
void quantize(Exec& exec, Operand& x);

// One form alone. `columnwise`: q.data is [K,M], made from the same x[M,K].
void quantize_form(Exec& exec, Quantized& q, bool columnwise, ConstTensor x, uint32_t tensor_id,
                   const float* producer_amax);

// y[outer,inner] F32 = the values that q stands for (a rotated copy stays rotated).
void dequantize(Exec& exec, Tensor y, const Quantized& q);

// Error of q against its source x[M,K]; for a columnwise copy x is read transposed (and rotated where q is).
QuantError quantization_error(Exec& exec, const Quantized& q, bool columnwise, ConstTensor x);

}  // namespace mantissa
