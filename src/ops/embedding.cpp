#include "ops/embedding.h"

#include <limits>

#include "ops/cpu/embedding.h"
#include "ops/cuda/embedding.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"

namespace mantissa {
namespace {

// Their values are read on a CPU alone.
void check_indices(const Exec& exec, const char* op, const char* name, const ConstTensor& indices, int64_t tokens,
                   int64_t limit) {
  expect(op, name, indices, DType::kI32, {tokens}, "one a token");
  if (exec.device()) return;
  const int32_t* p = indices.as<int32_t>();
  for (int64_t t = 0; t < tokens; ++t)
    check(p[t] >= 0 && p[t] < limit, "{}: {}[{}] is {}, expected 0 to {}", op, name, t, p[t], limit - 1);
}

constexpr const char* kBwd = "embedding_bwd";

void check_scatter(const Exec& exec, const char* name, const char* index_name, const Tensor& dtable,
                   const ConstTensor& dy, const ConstTensor& indices) {
  check(dtable.shape.rank() == 2, "{}: {} is {}, expected [rows,H]", kBwd, name, dtable);
  expect_float(kBwd, name, dtable, {dtable.dim(0), dy.dim(1)}, "H of dy");
  check_indices(exec, kBwd, index_name, indices, dy.dim(0), dtable.dim(0));
}

void scatter_rows(Exec& exec, Tensor dtable, const ConstTensor& dy, const ConstTensor& indices) {
  const int64_t tokens = dy.dim(0), rows = dtable.dim(0);
  const int64_t scratch = (rows + 2 * tokens) * int64_t{sizeof(int32_t)};
  check(scratch <= exec.shared_scratch_bytes(), "{}: needs {} bytes of shared scratch, has {}", kBwd, scratch,
        exec.shared_scratch_bytes());
  auto* first = reinterpret_cast<int32_t*>(exec.shared_scratch());
  const EmbeddingBwd args{.rows = tokens,
                          .cols = dy.dim(1),
                          .vocab = rows,
                          .dtable_type = dtable.dtype,
                          .dy_type = dy.dtype,
                          .dtable = dtable.data,
                          .dy = dy.data,
                          .ids = indices.as<int32_t>(),
                          .first = first,
                          .next = first + rows,
                          .used = first + rows + tokens};
  MANTISSA_CPU_CALL(exec, embedding_bwd, args);
}

}  // namespace

void embedding_fwd(Exec& exec, Tensor y, ConstTensor ids, ConstTensor table, ConstTensor positions,
                   ConstTensor position_table) {
  const char* op = "embedding_fwd";
  check(y.shape.rank() == 2, "{}: y is {}, expected [T,H]", op, y);
  check(table.shape.rank() == 2, "{}: table is {}, expected [V,H]", op, table);
  expect_float(op, "y", y, y.shape, "T, H");
  expect_float(op, "table", table, {table.dim(0), y.dim(1)}, "H of y");
  check_indices(exec, op, "ids", ids, y.dim(0), table.dim(0));
  if (position_table) {
    check(position_table.shape.rank() == 2, "{}: position_table is {}, expected [P,H]", op, position_table);
    expect(op, "position_table", position_table, table.dtype, {position_table.dim(0), y.dim(1)}, "H of y");
    check_indices(exec, op, "positions", positions, y.dim(0), position_table.dim(0));
  }
  if (exec.device()) return exec.gpu().embedding_fwd(exec, y, ids, table, positions, position_table);
  const EmbeddingFwd args{.rows = y.dim(0),
                          .cols = y.dim(1),
                          .y_type = y.dtype,
                          .table_type = table.dtype,
                          .y = y.data,
                          .ids = ids.as<int32_t>(),
                          .table = table.data,
                          .positions = position_table ? positions.as<int32_t>() : nullptr,
                          .position_table = position_table.data};
  MANTISSA_CPU_CALL(exec, embedding_fwd, args);
}

void embedding_bwd(Exec& exec, Tensor dtable, Tensor dposition_table, ConstTensor dy, ConstTensor ids,
                   ConstTensor positions) {
  check(dy.shape.rank() == 2, "embedding_bwd: dy is {}, expected [T,H]", dy);
  check(dy.dim(0) <= std::numeric_limits<int32_t>::max(), "embedding_bwd: {} tokens, expected fewer than 2^31",
        dy.dim(0));
  expect_float("embedding_bwd", "dy", dy, dy.shape, "T, H");
  check_scatter(exec, "dtable", "ids", dtable, dy, ids);
  if (dposition_table) check_scatter(exec, "dposition_table", "positions", dposition_table, dy, positions);
  if (exec.device()) return exec.gpu().embedding_bwd(exec, dtable, dposition_table, dy, ids, positions);
  scatter_rows(exec, dtable, dy, ids);
  if (dposition_table) scatter_rows(exec, dposition_table, dy, positions);
}

int64_t embedding_scratch_bytes(int64_t tokens, int64_t /*rows*/, int64_t cols) {
  return cuda::embedding_sort_bytes(tokens) + cuda::embedding_partial_bytes(tokens, cols);
}

}  // namespace mantissa
