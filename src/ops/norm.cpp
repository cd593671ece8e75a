#include "ops/norm.h"

#include <algorithm>

#include "ops/cpu/norm.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"
#include "ops/quantize.h"

namespace mantissa {
namespace {

// Checks what RMSNorm and LayerNorm share; r and h come together.
NormFwd forward_args(const char* op, Operand& y, Tensor rstd, Tensor h, const ConstTensor& x, const ConstTensor& r,
                     const ConstTensor& weight, float eps) {
  check(x.shape.rank() == 2, "{}: x is {}, expected [T,H]", op, x);
  const Shape tokens{x.dim(0)}, hidden{x.dim(1)};
  expect_float(op, "x", x, x.shape, "T, H");
  expect_float(op, "y", y.high, x.shape, "shape of x");
  expect(op, "rstd", rstd, DType::kF32, tokens, "T of x");
  expect(op, "weight", weight, x.dtype, hidden, "H of x");
  if (r) {
    expect(op, "r", r, x.dtype, x.shape, "as x");
    expect(op, "h", h, x.dtype, x.shape, "as x");
  }
  return {.rows = x.dim(0),
          .cols = x.dim(1),
          .x_type = x.dtype,
          .y_type = y.high.dtype,
          .y = y.high.data,
          .mean = nullptr,
          .rstd = rstd.as<float>(),
          .h = h.data,
          .x = x.data,
          .r = r.data,
          .weight = weight.data,
          .bias = nullptr,
          .eps = eps,
          .amax = y.producer_amax};
}

void rms_forward(const char* op, Exec& exec, Operand& y, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r,
                 ConstTensor weight, float eps) {
  const NormFwd args = forward_args(op, y, rstd, h, x, r, weight, eps);
  if (!exec.device())
    MANTISSA_CPU_CALL(exec, rms_norm_fwd, args);
  else if (r)
    exec.gpu().add_rms_norm_fwd(exec, y, rstd, h, x, r, weight, eps);
  else
    exec.gpu().rms_norm_fwd(exec, y, rstd, x, weight, eps);
  quantize(exec, y);
}

void layer_forward(const char* op, Exec& exec, Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x,
                   ConstTensor r, ConstTensor weight, ConstTensor bias, float eps) {
  NormFwd args = forward_args(op, y, rstd, h, x, r, weight, eps);
  expect(op, "mean", mean, DType::kF32, {x.dim(0)}, "T of x");
  expect(op, "bias", bias, x.dtype, {x.dim(1)}, "H of x");
  args.mean = mean.as<float>();
  args.bias = bias.data;
  if (!exec.device())
    MANTISSA_CPU_CALL(exec, layer_norm_fwd, args);
  else if (r)
    exec.gpu().add_layer_norm_fwd(exec, y, mean, rstd, h, x, r, weight, bias, eps);
  else
    exec.gpu().layer_norm_fwd(exec, y, mean, rstd, x, weight, bias, eps);
  quantize(exec, y);
}

void check_backward(const char* op, const Tensor& dx, const Tensor& dweight, const ConstTensor& dy,
                    const ConstTensor& x, const ConstTensor& weight, const ConstTensor& rstd,
                    const ConstTensor& dresidual) {
  check(x.shape.rank() == 2, "{}: x is {}, expected [T,H]", op, x);
  const Shape tokens{x.dim(0)}, hidden{x.dim(1)};
  expect_float(op, "x", x, x.shape, "T, H");
  expect(op, "dy", dy, x.dtype, x.shape, "as x");
  expect(op, "dx", dx, x.dtype, x.shape, "as x");
  expect(op, "weight", weight, x.dtype, hidden, "H of x");
  expect(op, "rstd", rstd, DType::kF32, tokens, "T of x");
  expect_float(op, "dweight", dweight, hidden, "H of x");
  if (dresidual) expect(op, "dresidual", dresidual, x.dtype, x.shape, "as x");
}

NormBwd backward_args(const char* op, Exec& exec, Tensor dx, Tensor dweight, const ConstTensor& dy,
                      const ConstTensor& x, const ConstTensor& weight, const ConstTensor& rstd,
                      const ConstTensor& dresidual, int partials) {
  const RowBlocks blocks = row_blocks(op, exec, x.dim(0), partials * x.dim(1) * int64_t{sizeof(float)});
  return {.rows = x.dim(0),
          .cols = x.dim(1),
          .block_rows = blocks.rows,
          .blocks = blocks.count,
          .type = x.dtype,
          .weight_grad_type = dweight.dtype,
          .dx = dx.data,
          .dweight = dweight.data,
          .dbias = nullptr,
          .dy = dy.data,
          .x = x.data,
          .weight = weight.data,
          .mean = nullptr,
          .rstd = rstd.as<float>(),
          .dresidual = dresidual.data,
          .partial = reinterpret_cast<float*>(exec.shared_scratch())};
}

}  // namespace

void rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, ConstTensor x, ConstTensor weight, float eps) {
  rms_forward("rms_norm_fwd", exec, y, rstd, {}, x, {}, weight, eps);
}

void add_rms_norm_fwd(Exec& exec, Operand& y, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r, ConstTensor weight,
                      float eps) {
  check(static_cast<bool>(r), "add_rms_norm_fwd: r is missing, expected {}", x);
  rms_forward("add_rms_norm_fwd", exec, y, rstd, h, x, r, weight, eps);
}

void rms_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, ConstTensor dy, ConstTensor x, ConstTensor weight,
                  ConstTensor rstd, ConstTensor dresidual) {
  check_backward("rms_norm_bwd", dx, dweight, dy, x, weight, rstd, dresidual);
  if (exec.device()) return exec.gpu().rms_norm_bwd(exec, dx, dweight, dy, x, weight, rstd, dresidual);
  const NormBwd args = backward_args("rms_norm_bwd", exec, dx, dweight, dy, x, weight, rstd, dresidual, 1);
  MANTISSA_CPU_CALL(exec, rms_norm_bwd, args);
}

void layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, ConstTensor x, ConstTensor weight,
                    ConstTensor bias, float eps) {
  layer_forward("layer_norm_fwd", exec, y, mean, rstd, {}, x, {}, weight, bias, eps);
}

void add_layer_norm_fwd(Exec& exec, Operand& y, Tensor mean, Tensor rstd, Tensor h, ConstTensor x, ConstTensor r,
                        ConstTensor weight, ConstTensor bias, float eps) {
  check(static_cast<bool>(r), "add_layer_norm_fwd: r is missing, expected {}", x);
  layer_forward("add_layer_norm_fwd", exec, y, mean, rstd, h, x, r, weight, bias, eps);
}

void layer_norm_bwd(Exec& exec, Tensor dx, Tensor dweight, Tensor dbias, ConstTensor dy, ConstTensor x,
                    ConstTensor weight, ConstTensor mean, ConstTensor rstd, ConstTensor dresidual) {
  check_backward("layer_norm_bwd", dx, dweight, dy, x, weight, rstd, dresidual);
  expect("layer_norm_bwd", "mean", mean, DType::kF32, {x.dim(0)}, "T of x");
  expect("layer_norm_bwd", "dbias", dbias, dweight.dtype, {x.dim(1)}, "as dweight");
  if (exec.device()) return exec.gpu().layer_norm_bwd(exec, dx, dweight, dbias, dy, x, weight, mean, rstd, dresidual);
  NormBwd args = backward_args("layer_norm_bwd", exec, dx, dweight, dy, x, weight, rstd, dresidual, 2);
  args.mean = mean.as<float>();
  args.dbias = dbias.data;
  MANTISSA_CPU_CALL(exec, layer_norm_bwd, args);
}

int64_t row_reduction_scratch_bytes(int64_t rows, int64_t cols) {
  return 2 * std::min(rows, kRowReductionBlocks) * cols * int64_t{sizeof(float)};
}

}  // namespace mantissa
