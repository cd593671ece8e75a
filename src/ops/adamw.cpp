#include "ops/adamw.h"

#include <cmath>

#include "ops/cpu/adamw.h"
#include "ops/expect.h"

namespace mantissa {

int64_t adamw(Exec& exec, Tensor param, Tensor copy, ConstTensor grad, Tensor m, Tensor v, const AdamwStep& step,
              bool stochastic, uint32_t tensor_id) {
  expect_float("adamw", "param", param, param.shape, "any shape");
  expect_float("adamw", "grad", grad, param.shape, "shape of param");
  expect_float("adamw", "m", m, param.shape, "shape of param");
  expect("adamw", "v", v, m.dtype, param.shape, "as m");
  if (copy) expect("adamw", "copy", copy, DType::kBF16, param.shape, "shape of param");
  check(!stochastic || param.dtype == DType::kBF16, "adamw: param is {}, expected bf16 for stochastic rounding", param);
  check(step.t >= 1, "adamw: step is {}, expected 1 or more", step.t);
  const double beta1 = step.beta1, beta2 = step.beta2, t = static_cast<double>(step.t);
  const AdamwArgs args{.n = param.count(),
                       .param_type = param.dtype,
                       .grad_type = grad.dtype,
                       .state_type = m.dtype,
                       .param = param.data,
                       .copy = copy.data,
                       .grad = grad.data,
                       .m = m.data,
                       .v = v.data,
                       .grad_scale = step.grad_scale,
                       .decay = static_cast<float>(double{step.lr} * step.weight_decay),
                       .beta1 = step.beta1,
                       .one_minus_beta1 = static_cast<float>(1 - beta1),
                       .beta2 = step.beta2,
                       .one_minus_beta2 = static_cast<float>(1 - beta2),
                       .step_size = static_cast<float>(step.lr / (1 - std::pow(beta1, t))),
                       .sqrt_correction2 = static_cast<float>(std::sqrt(1 - std::pow(beta2, t))),
                       .eps = step.eps,
                       .stochastic = stochastic,
                       .key = exec.random_key(tensor_id, DrawForm::kUpdate)};
  return MANTISSA_CPU_CALL(exec, adamw, args);
}

}  // namespace mantissa
