// Argument checks of ops: a message says found, expected and why.
#pragma once

#include "tensor/exec.h"
#include "tensor/tensor.h"

namespace mantissa {

// Throws Exit::kInternal unless `t` has an address, `shape` and one of the dtypes; `why` ends the message, e.g. "H of
// x".
void expect(const char* op, const char* name, const ConstTensor& t, DType dtype, const Shape& shape, const char* why);
void expect_float(const char* op, const char* name, const ConstTensor& t, const Shape& shape,
                  const char* why);  // F32, BF16

// Rows cut into blocks whose partial sums, `row_bytes` each, fit the shared scratch. The cut depends on the sizes
// alone, so sums of partials in block order do not depend on the number of threads.
struct RowBlocks {
  int64_t rows = 0;   // rows a block
  int64_t count = 0;  // blocks
};
RowBlocks row_blocks(const char* op, const Exec& exec, int64_t rows, int64_t row_bytes);

}  // namespace mantissa
