#include "recipes/quantized_linear.h"

#include "ops/gemm.h"
#include "ops/quantize.h"
#include "recipes/format.h"

namespace mantissa {
namespace {

GemmSide along_columns(const Operand& x) {
  return x.columnwise ? GemmSide::quantized(x.columnwise) : GemmSide::quantized(x.rowwise, /*transposed=*/true);
}

}  // namespace

QuantizedLinear::QuantizedLinear(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site)
    : recipe_(entry.name),
      site_(site),
      input_(entry.spec(options, Role::kInput)),
      weight_spec_(entry.spec(options, Role::kWeight)),
      grad_(entry.spec(options, Role::kGrad)),
      producers_(entry.producers ? entry.producers(options) : ProducerRule::kRounded) {}

OperandSpec QuantizedLinear::stored(OperandSpec spec, Producer producer) const {
  if (same_codes(spec)) spec.columnwise.reset();
  const bool activation = producer == Producer::kActivation;
  spec.unrounded = producers_ == ProducerRule::kUnrounded && producer != Producer::kPlain;
  spec.amax_before_rounding = producers_ == ProducerRule::kActivationAmax && activation;
  return spec;
}

void QuantizedLinear::allocate(Arena& arena) {
  weight_ = arena.operand("quantized weights", stored(weight_spec_, Producer::kPlain), site_.n, site_.k);
  weight_.tensor_id = site_.tensor_id + 1;
}

void QuantizedLinear::refresh_weight(Exec& exec, ConstTensor w) {
  check(w.dtype == DType::kBF16 && w.rows() == site_.n && w.cols() == site_.k,
        "{}: weight of {} is {}, expected bf16[{},{}]", recipe_, site_.name, w, site_.n, site_.k);
  quantize_form(exec, weight_.rowwise, /*columnwise=*/false, w, weight_.tensor_id, nullptr);
  if (weight_.columnwise) quantize_form(exec, weight_.columnwise, /*columnwise=*/true, w, weight_.tensor_id, nullptr);
}

void QuantizedLinear::fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) {
  gemm(exec, {.a = GemmSide::quantized(x.rowwise), .b = GemmSide::quantized(weight_.rowwise), .c = y, .bias = bias});
}

void QuantizedLinear::dgrad(Exec& exec, Tensor dx, const Operand& dy) {
  gemm(exec, {.a = GemmSide::quantized(dy.rowwise), .b = along_columns(weight_), .c = dx, .bias = {}});
}

void QuantizedLinear::wgrad(Exec& exec, Tensor dw, const Operand& dy, const Operand& x, float beta) {
  gemm(exec, {.a = along_columns(dy), .b = along_columns(x), .c = dw, .bias = {}, .beta = beta});
}

RecipeInfo QuantizedLinear::info() const {
  const auto both = [](const OperandSpec& spec) {
    const std::string rows = str(*spec.rowwise), columns = str(*spec.columnwise);
    return rows == columns ? rows : fmt::format("{} (columns {})", rows, columns);
  };
  return {.name = recipe_, .input = both(input_), .weight = both(weight_spec_), .grad = both(grad_)};
}

RecipeEntry quantized_entry(RecipeEntry row) {
  if (!row.layer)
    row.layer = [](const RecipeEntry& entry, const RecipeOptions& options,
                   const LinearSite& site) -> std::unique_ptr<LinearRecipe> {
      return std::make_unique<QuantizedLinear>(entry, options, site);
    };
  row.path = path_of_quantized;
  row.compute = DType::kBF16;
  return row;
}

}  // namespace mantissa
