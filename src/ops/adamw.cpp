#include "ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/adamw.h"
#include "ops/cuda/adamw/rows.h"
#include "ops/cuda/table.h"
#include "ops/elementwise.h"
#include "ops/expect.h"
#include "tensor/quant.h"

namespace mantissa {
namespace {

void check_param(const AdamwParam& p, bool stochastic) {
  constexpr const char* op = "adamw_update";
  const Shape& shape = p.param.shape;
  expect_float(op, "param", p.param, shape, "any shape");
  expect_float(op, "grad", p.grad, shape, "shape of param");
  if (p.m.dtype == DType::kU8) {
    const Shape blocks{ceil_div(p.param.count(), kMomentBlock)};
    expect(op, "m", p.m, DType::kU8, shape, "shape of param");
    expect(op, "m_scale", p.m_scale, DType::kF32, blocks, "one a block of 8-bit moments");
    expect(op, "v_scale", p.v_scale, DType::kF32, blocks, "one a block of 8-bit moments");
  } else {
    expect_float(op, "m", p.m, shape, "shape of param");
  }
  expect(op, "v", p.v, p.m.dtype, shape, "as m");
  if (p.copy) expect(op, "copy", p.copy, DType::kBF16, shape, "shape of param");
  check(!stochastic || p.param.dtype == DType::kBF16, "{}: param is {}, expected bf16 for stochastic rounding", op,
        p.param);
}

int64_t update_on_cpu(Exec& exec, const AdamwParam& p, const AdamwStep& step, bool stochastic) {
  const AdamwFactors f(step);
  const AdamwArgs args{.n = p.param.count(),
                       .param_type = p.param.dtype,
                       .grad_type = p.grad.dtype,
                       .state_type = p.m.dtype,
                       .param = p.param.data,
                       .copy = p.copy.data,
                       .grad = p.grad.data,
                       .m = p.m.data,
                       .v = p.v.data,
                       .m_scale = static_cast<float*>(p.m_scale.data),
                       .v_scale = static_cast<float*>(p.v_scale.data),
                       .grad_scale = step.grad_scale,
                       .decay = p.decays ? f.decay : 0.0f,
                       .beta1 = f.beta1,
                       .one_minus_beta1 = f.one_minus_beta1,
                       .beta2 = f.beta2,
                       .one_minus_beta2 = f.one_minus_beta2,
                       .step_size = f.step_size,
                       .sqrt_correction2 = f.sqrt_correction2,
                       .eps = f.eps,
                       .stochastic = stochastic,
                       .key = exec.random_key(p.id, DrawForm::kUpdate)};
  return MANTISSA_CPU_CALL(exec, adamw, args);
}

}  // namespace

AdamwFactors::AdamwFactors(const AdamwStep& step)
    : decay(static_cast<float>(double{step.lr} * step.weight_decay)),
      beta1(step.beta1),
      one_minus_beta1(static_cast<float>(1 - double{step.beta1})),
      beta2(step.beta2),
      one_minus_beta2(static_cast<float>(1 - double{step.beta2})),
      step_size(static_cast<float>(step.lr / (1 - std::pow(double{step.beta1}, static_cast<double>(step.t))))),
      sqrt_correction2(static_cast<float>(std::sqrt(1 - std::pow(double{step.beta2}, static_cast<double>(step.t))))),
      eps(step.eps) {}

void adamw_update(Exec& exec, AdamwOutcome* outcome, std::span<const AdamwParam> params, const AdamwStep& step,
                  double max_norm, bool stochastic) {
  for (const AdamwParam& p : params) check_param(p, stochastic);
  check(step.t >= 1, "adamw_update: step is {}, expected 1 or more", step.t);
  if (exec.device()) return exec.gpu().adamw_update(exec, outcome, params, step, max_norm, stochastic);
  double sum = 0;
  for (const AdamwParam& p : params) sum += sum_of_squares(exec, p.grad);
  *outcome = {.grad_norm = std::sqrt(sum)};
  if (!std::isfinite(outcome->grad_norm)) return;
  AdamwStep scaled = step;
  if (max_norm > 0) scaled.grad_scale *= static_cast<float>(std::min(1.0, max_norm / (outcome->grad_norm + 1e-6)));
  for (const AdamwParam& p : params) outcome->unmoved += update_on_cpu(exec, p, scaled, stochastic);
}

int64_t adamw_scratch_bytes(std::span<const AdamwParam> params) {
  return cuda::kAdamwPartialBytes + static_cast<int64_t>(params.size()) * int64_t{sizeof(cuda::AdamwRow)};
}

}  // namespace mantissa
