#include "ops/expect.h"

#include <algorithm>

#include "tensor/quant.h"

namespace mantissa {
namespace {

constexpr int64_t kMinBlockRows = 16;
constexpr int64_t kMaxBlocks = 64;

}  // namespace

void expect(const char* op, const char* name, const ConstTensor& t, DType dtype, const Shape& shape, const char* why) {
  check(static_cast<bool>(t) || shape.count() == 0, "{}: {} is missing, expected {}{} ({})", op, name, name_of(dtype),
        shape, why);
  check(t.dtype == dtype && t.shape == shape, "{}: {} is {}, expected {}{} ({})", op, name, t, name_of(dtype), shape,
        why);
}

void expect_float(const char* op, const char* name, const ConstTensor& t, const Shape& shape, const char* why) {
  check(static_cast<bool>(t) || shape.count() == 0, "{}: {} is missing, expected {} ({})", op, name, shape, why);
  check(t.dtype == DType::kF32 || t.dtype == DType::kBF16, "{}: {} is {}, expected f32 or bf16", op, name, t);
  check(t.shape == shape, "{}: {} is {}, expected {} ({})", op, name, t, shape, why);
}

RowBlocks row_blocks(const char* op, const Exec& exec, int64_t rows, int64_t row_bytes) {
  const int64_t fit = exec.shared_scratch_bytes() / std::max<int64_t>(row_bytes, 1);
  check(fit >= 1, "{}: a partial sum of {} bytes, expected at most {} (shared scratch)", op, row_bytes,
        exec.shared_scratch_bytes());
  RowBlocks blocks;
  blocks.rows = std::max(kMinBlockRows, ceil_div(rows, std::min(kMaxBlocks, fit)));
  blocks.count = ceil_div(rows, blocks.rows);
  return blocks;
}

}  // namespace mantissa
