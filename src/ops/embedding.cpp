#include "ops/embedding.h"

#include <limits>

#include "ops/cpu/embedding.h"
#include "ops/expect.h"

namespace mantissa {
namespace {

void check_indices(const char* op, const char* name, const ConstTensor& indices, int64_t tokens, int64_t limit) {
  expect(op, name, indices, DType::kI32, {tokens}, "one a token");
  const int32_t* p = indices.as<int32_t>();
  for (int64_t t = 0; t < tokens; ++t)
    check(p[t] >= 0 && p[t] < limit, "{}: {}[{}] is {}, expected 0 to {}", op, name, t, p[t], limit - 1);
}

void scatter_rows(Exec& exec, const char* name, const char* index_name, Tensor dtable, const ConstTensor& dy,
                  const ConstTensor& indices) {
  const char* op = "embedding_bwd";
  check(dtable.shape.rank() == 2, "{}: {} is {}, expected [rows,H]", op, name, dtable);
  expect_float(op, name, dtable, {dtable.dim(0), dy.dim(1)}, "H of dy");
  const int64_t tokens = dy.dim(0), rows = dtable.dim(0);
  check_indices(op, index_name, indices, tokens, rows);
  const int64_t scratch = (rows + 2 * tokens) * int64_t{sizeof(int32_t)};
  check(scratch <= exec.shared_scratch_bytes(), "{}: needs {} bytes of shared scratch, has {}", op, scratch,
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
  check_indices(op, "ids", ids, y.dim(0), table.dim(0));
  if (position_table) {
    check(position_table.shape.rank() == 2, "{}: position_table is {}, expected [P,H]", op, position_table);
    expect(op, "position_table", position_table, table.dtype, {position_table.dim(0), y.dim(1)}, "H of y");
    check_indices(op, "positions", positions, y.dim(0), position_table.dim(0));
  }
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
  scatter_rows(exec, "dtable", "ids", dtable, dy, ids);
  if (dposition_table) scatter_rows(exec, "dposition_table", "positions", dposition_table, dy, positions);
}

}  // namespace mantissa
