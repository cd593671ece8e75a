#include "ops/activation.h"

#include "ops/cpu/activation.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"
#include "ops/quantize.h"

namespace mantissa {
namespace {

// `factor` columns of x a column of y: 2 for [gate | up], 1 for GELU.
ActivationFwd forward_args(const char* op, const Operand& y, const ConstTensor& x, int64_t factor) {
  check(x.shape.rank() == 2 && x.dim(1) % factor == 0, "{}: x is {}, expected [T,{}F]", op, x, factor);
  const Shape out{x.dim(0), x.dim(1) / factor};
  expect_float(op, "x", x, x.shape, "T, columns");
  expect_float(op, "y", y.high, out, "T of x, F");
  return {.rows = out[0],
          .cols = out[1],
          .x_type = x.dtype,
          .y_type = y.high.dtype,
          .y = y.high.data,
          .x = x.data,
          .amax = y.producer_amax};
}

ActivationBwd backward_args(const char* op, const Operand& dx, const ConstTensor& dy, const ConstTensor& x,
                            int64_t factor) {
  check(x.shape.rank() == 2 && x.dim(1) % factor == 0, "{}: x is {}, expected [T,{}F]", op, x, factor);
  const Shape out{x.dim(0), x.dim(1) / factor};
  expect_float(op, "x", x, x.shape, "T, columns");
  expect(op, "dy", dy, x.dtype, out, "T of x, F");
  expect_float(op, "dx", dx.high, x.shape, "as x");
  return {.rows = out[0],
          .cols = out[1],
          .x_type = x.dtype,
          .dx_type = dx.high.dtype,
          .dx = dx.high.data,
          .dy = dy.data,
          .x = x.data,
          .amax = dx.producer_amax};
}

void fill_forms(Exec& exec, Operand& y) { quantize(exec, y); }

}  // namespace

void swiglu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  const ActivationFwd args = forward_args("swiglu_fwd", y, x, 2);
  if (exec.device()) return exec.gpu().swiglu_fwd(exec, y, x);  // and the forms
  MANTISSA_CPU_CALL(exec, swiglu_fwd, args);
  fill_forms(exec, y);
}

void swiglu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  const ActivationBwd args = backward_args("swiglu_bwd", dx, dy, x, 2);
  if (exec.device()) return exec.gpu().swiglu_bwd(exec, dx, dy, x);  // and the forms
  MANTISSA_CPU_CALL(exec, swiglu_bwd, args);
  fill_forms(exec, dx);
}

void gelu_fwd(Exec& exec, Operand& y, ConstTensor x) {
  const ActivationFwd args = forward_args("gelu_fwd", y, x, 1);
  if (exec.device()) return exec.gpu().gelu_fwd(exec, y, x);  // and the forms
  MANTISSA_CPU_CALL(exec, gelu_fwd, args);
  fill_forms(exec, y);
}

void gelu_bwd(Exec& exec, Operand& dx, ConstTensor dy, ConstTensor x) {
  const ActivationBwd args = backward_args("gelu_bwd", dx, dy, x, 1);
  if (exec.device()) return exec.gpu().gelu_bwd(exec, dx, dy, x);  // and the forms
  MANTISSA_CPU_CALL(exec, gelu_bwd, args);
  fill_forms(exec, dx);
}

}  // namespace mantissa
