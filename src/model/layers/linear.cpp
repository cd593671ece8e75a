#include "model/layers/linear.h"

#include "ops/elementwise.h"
#include "ops/quantize.h"

namespace mantissa {
namespace {

const char* kActivations = "activations";

// `saved` names the form that lives in `kept`: the columnwise copy where there is one, else the rowwise one, else
// `high`.
Operand make_operand(const OperandSpec& spec, int64_t m, int64_t k, DType dtype, Allocator& kept, Allocator& shared,
                     Tensor high) {
  Operand x;
  if (spec.columnwise) x.columnwise = kept.quantized(kActivations, *spec.columnwise, k, m);
  if (spec.rowwise) x.rowwise = (spec.columnwise ? shared : kept).quantized(kActivations, *spec.rowwise, m, k);
  const bool quantized = spec.columnwise || spec.rowwise;
  x.high = high;
  if (!high.shape.rank())
    x.high = (quantized ? shared : kept).tensor(kActivations, spec.unrounded ? DType::kF32 : dtype, {m, k});
  if (spec.amax_before_rounding)
    x.producer_amax = static_cast<float*>(shared.tensor(kActivations, DType::kF32, {1}).data);
  return x;
}

// The scale that a cast was given; 0: none was.
double scale_of(const Exec& exec, const Quantized& form) {
  if (!form.scale) return 0;
  float scale = 0;
  if (exec.device())
    exec.device()->copy_out(&scale, form.scale, sizeof scale);
  else
    scale = *form.scale;
  return scale;
}

}  // namespace

void check_finite(const StepContext& context, ConstTensor x, std::string_view owner, std::string_view tensor) {
  if (!context.check_finite) return;
  const int64_t at = first_nonfinite(context.exec, x);
  if (at >= 0) fail(Exit::kNonFinite, "{}{} {} is not finite at element {}", owner, tensor, x, at);
}

Linear::Linear(LinearSite site, std::unique_ptr<LinearRecipe> recipe, int weight, int bias)
    : site_(std::move(site)), recipe_(std::move(recipe)), weight_(weight), bias_(bias) {}

Operand Linear::make_input(Producer producer, int64_t m, DType dtype, Allocator& kept, Allocator& shared,
                           Tensor high) const {
  Operand x = make_operand(recipe_->input_spec(producer), m, site_.k, dtype, kept, shared, high);
  x.tensor_id = site_.tensor_id;
  x.high_read = !x.rowwise && !x.columnwise;
  recipe_->bind_input(x);
  return x;
}

Operand Linear::make_grad(Producer producer, int64_t m, DType dtype, Allocator& shared, Tensor high) const {
  Operand dy = make_operand(recipe_->grad_spec(producer), m, site_.n, dtype, shared, shared, high);
  dy.tensor_id = site_.tensor_id + 2;
  dy.high_read = bias_ >= 0 || (!dy.rowwise && !dy.columnwise);
  recipe_->bind_grad(dy);
  return dy;
}

void Linear::refresh_weight(StepContext& context) {
  const Tensor w = context.params.padded_weight(weight_);
  recipe_->refresh_weight(context.exec, w);
  const Quantized* form = recipe_->weight_form();
  if (context.errors && form) {
    const QuantError e = quantization_error(context.exec, *form, false, w);
    context.errors->push_back({site_.name, "weight", e.amax, scale_of(context.exec, *form), e.snr_db(),
                               e.saturated_share(), e.flushed_share()});
  }
}

void Linear::measure(StepContext& context, const Operand& x, const char* tensor) const {
  if (!context.errors) return;
  const Quantized& form = x.rowwise ? x.rowwise : x.columnwise;
  if (!form) return;
  const QuantError e = quantization_error(context.exec, form, !x.rowwise, x.high);
  context.errors->push_back(
      {site_.name, tensor, e.amax, scale_of(context.exec, form), e.snr_db(), e.saturated_share(), e.flushed_share()});
}

void Linear::forward(StepContext& context, Tensor y, const Operand& x) const {
  if (context.exec.pass == Pass::kForward) measure(context, x, "input");
  recipe_->fprop(context.exec, y, x, bias_ < 0 ? ConstTensor{} : context.params.weight(bias_));
  check_finite(context, y, site_.name, " output");
}

void Linear::backward(StepContext& context, Tensor dx, const Operand& dy, const Operand& x) const {
  measure(context, dy, "grad");
  if (dx) recipe_->dgrad(context.exec, dx, dy);
  recipe_->wgrad(context.exec, context.params.padded_grad(weight_), dy, x, context.params.take_beta(weight_));
  if (bias_ >= 0) bias_bwd(context.exec, context.params.grad(bias_), dy.high);
}

}  // namespace mantissa
