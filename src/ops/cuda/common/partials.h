// Column sums in a fixed order: each block of a kernel leaves one FP32 row of partial sums in the shared scratch, then
// these rows are added in their order.
#pragma once

#include "tensor/exec.h"

namespace mantissa::cuda {

// Scratch for `rows` partial rows of `cols` floats.
float* partial_rows(const char* op, const Exec& exec, int64_t rows, int64_t cols);

// a[N] (and b[N], where it has an address) += the column sums of partial[rows, N] ([rows, 2N]: a's columns, then b's),
// rounded once. F32 or BF16.
void add_partials(Exec& exec, const float* partial, int64_t rows, Tensor a, Tensor b = {});

}  // namespace mantissa::cuda
