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

QuantizedLinear::QuantizedLinear(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                                 const RecipeTarget& target)
    : recipe_(entry.name),
      site_(site),
      target_(target),
      path_(entry.path(target).path),
      input_(entry.spec(options, Role::kInput)),
      weight_spec_(entry.spec(options, Role::kWeight)),
      grad_(entry.spec(options, Role::kGrad)),
      producers_(entry.producers ? entry.producers(options) : ProducerRule::kRounded) {}

OperandSpec QuantizedLinear::stored(OperandSpec spec, Producer producer) const {
  if (path_ == Path::kEmulated && same_codes(spec)) spec.columnwise.reset();
  for (std::optional<QuantFormat>* copy : {&spec.rowwise, &spec.columnwise})
    if (target_.gpu && *copy) {
      (*copy)->values = path_ == Path::kEmulated;
      if (path_ == Path::kNative && (*copy)->blocking != Blocking::kTensor) (*copy)->layout = ScaleLayout::kLibrary;
    }
  const bool activation = producer == Producer::kActivation;
  spec.unrounded = producers_ == ProducerRule::kUnrounded && producer != Producer::kPlain;
  spec.amax_before_rounding = producers_ == ProducerRule::kActivationAmax && activation;
  return spec;
}

void QuantizedLinear::allocate(Arena& arena) {
  weight_ = arena.operand("quantized weights", stored(weight_spec_, Producer::kPlain), site_.n, site_.k);
  bind(weight_, 1);
}

// An amax that no product and no other copy reads costs a GPU a kernel.
void QuantizedLinear::bind(Operand& x, uint32_t tensor) const {
  x.tensor_id = site_.tensor_id + tensor;
  if (!target_.gpu) return;
  const auto drop = [](Quantized& q, bool needed) {
    if (!needed) q.amax = nullptr;
  };
  const ScaleRule rule = x.rowwise.format.rule;
  const bool nvfp4 = rule == ScaleRule::kNvfp4, tensor_amax = x.rowwise.format.blocking == Blocking::kTensor;
  drop(x.rowwise, nvfp4 || (tensor_amax && rule != ScaleRule::kGiven));
  drop(x.columnwise, nvfp4);
}

void QuantizedLinear::refresh_weight(Exec& exec, Tensor w) {
  check(w.dtype == DType::kBF16 && w.rows() == site_.n && w.cols() == site_.k,
        "{}: weight of {} is {}, expected bf16[{},{}]", recipe_, site_.name, w, site_.n, site_.k);
  weight_.high = w;
  quantize(exec, weight_);
}

void QuantizedLinear::fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) {
  gemm(exec, {.a = GemmSide::quantized(x.rowwise),
              .b = GemmSide::quantized(weight_.rowwise),
              .c = y,
              .bias = bias,
              .fast_accumulation = true});
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
    row.layer = [](const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                   const RecipeTarget& target) -> std::unique_ptr<LinearRecipe> {
      return std::make_unique<QuantizedLinear>(entry, options, site, target);
    };
  if (!row.path) row.path = path_of_emulated;
  row.compute = DType::kBF16;
  return row;
}

}  // namespace mantissa
