#include "ops/elementwise.h"

#include <algorithm>

#include "ops/cpu/elementwise.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"
#include "tensor/quant.h"

namespace mantissa {
namespace {

constexpr int64_t kScanBlock = 16384;  // elements a partial result

// Blocks whose results, 8 bytes each, fit the shared scratch.
BlockScan scan_args(const char* op, Exec& exec, const ConstTensor& x) {
  const int64_t most = exec.shared_scratch_bytes() / int64_t{sizeof(double)};
  check(most > 0, "{}: {} bytes of shared scratch, expected 8 or more", op, exec.shared_scratch_bytes());
  return {.n = x.count(),
          .block = std::max(kScanBlock, ceil_div(x.count(), most)),
          .type = x.dtype,
          .x = x.data,
          .squares = reinterpret_cast<double*>(exec.shared_scratch()),
          .index = reinterpret_cast<int64_t*>(exec.shared_scratch())};
}

}  // namespace

void add(Exec& exec, Tensor y, ConstTensor a, ConstTensor b) {
  expect_float("add", "y", y, y.shape, "any shape");
  expect_float("add", "a", a, y.shape, "shape of y");
  expect_float("add", "b", b, y.shape, "shape of y");
  if (exec.device()) return exec.gpu().add(exec, y, a, b);
  const AddArgs args{
      .n = y.count(), .y_type = y.dtype, .a_type = a.dtype, .b_type = b.dtype, .y = y.data, .a = a.data, .b = b.data};
  MANTISSA_CPU_CALL(exec, add, args);
}

void cast(Exec& exec, Tensor y, ConstTensor x) {
  expect_float("cast", "y", y, y.shape, "any shape");
  expect_float("cast", "x", x, y.shape, "shape of y");
  if (exec.device()) return exec.gpu().cast(exec, y, x);
  const CastArgs args{.n = y.count(), .y_type = y.dtype, .x_type = x.dtype, .y = y.data, .x = x.data};
  MANTISSA_CPU_CALL(exec, cast, args);
}

void bias_bwd(Exec& exec, Tensor db, ConstTensor dy) {
  check(dy.shape.rank() == 2, "bias_bwd: dy is {}, expected [T,N]", dy);
  expect_float("bias_bwd", "dy", dy, dy.shape, "T, N");
  expect_float("bias_bwd", "db", db, {dy.dim(1)}, "N of dy");
  if (exec.device()) return exec.gpu().bias_bwd(exec, db, dy);
  const RowBlocks blocks = row_blocks("bias_bwd", exec, dy.dim(0), dy.dim(1) * int64_t{sizeof(float)});
  const BiasBwd args{.rows = dy.dim(0),
                     .cols = dy.dim(1),
                     .block_rows = blocks.rows,
                     .blocks = blocks.count,
                     .db_type = db.dtype,
                     .dy_type = dy.dtype,
                     .db = db.data,
                     .dy = dy.data,
                     .partial = reinterpret_cast<float*>(exec.shared_scratch())};
  MANTISSA_CPU_CALL(exec, bias_bwd, args);
}

double sum_of_squares(Exec& exec, ConstTensor x) {
  expect_float("sum_of_squares", "x", x, x.shape, "any shape");
  if (exec.device()) return exec.gpu().sum_of_squares(exec, x);
  const BlockScan args = scan_args("sum_of_squares", exec, x);
  MANTISSA_CPU_CALL(exec, sum_of_squares, args);
  double sum = 0;
  for (int64_t b = 0; b < ceil_div(args.n, args.block); ++b) sum += args.squares[b];
  return sum;
}

int64_t first_nonfinite(Exec& exec, ConstTensor x) {
  expect_float("first_nonfinite", "x", x, x.shape, "any shape");
  if (exec.device()) return exec.gpu().first_nonfinite(exec, x);
  const BlockScan args = scan_args("first_nonfinite", exec, x);
  MANTISSA_CPU_CALL(exec, first_nonfinite, args);
  for (int64_t b = 0; b < ceil_div(args.n, args.block); ++b)
    if (args.index[b] >= 0) return args.index[b];
  return -1;
}

}  // namespace mantissa
