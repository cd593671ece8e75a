#include "train/engine.h"

#include <algorithm>
#include <cmath>

#include "ops/adamw.h"
#include "ops/elementwise.h"

namespace mantissa {
namespace {

DType choose(const std::string& wanted, WeightMode weights, const char* key) {
  const bool full = weights == WeightMode::kF32 || weights == WeightMode::kF32Master;
  if (wanted == "auto") return full ? DType::kF32 : DType::kBF16;
  if (wanted == "fp32") return DType::kF32;
  if (wanted != "bf16") fail(Exit::kUsage, "optimizer.{}: {}: expected auto, fp32 or bf16", key, wanted);
  if (weights == WeightMode::kF32)
    fail(Exit::kUsage, "optimizer.{}: bf16, but recipe fp32 keeps everything in FP32", key);
  return DType::kBF16;
}

ParamStoreOptions store_options(const PrecisionConfig& precision, const EngineOptions& options) {
  const WeightMode weights = precision.weight_mode();
  return {.weights = weights,
          .grads = choose(options.grads, weights, "grads"),
          .state = choose(options.state, weights, "state"),
          .training = options.training};
}

}  // namespace

MicroBatch view(const Batch& b) {
  const auto t = static_cast<int64_t>(b.ids.size());
  return {{b.ids.data(), DType::kI32, {t}},
          {b.labels.data(), DType::kI32, {t}},
          {b.positions.data(), DType::kI32, {t}},
          {b.segments.data(), DType::kI32, {static_cast<int64_t>(b.segments.size())}}};
}

Engine::Engine(const ModelConfig& model, const PrecisionConfig& precision, const EngineOptions& options)
    : params_(find_arch(model.arch).params(model), store_options(precision, options)),
      decoder_(model, precision, params_, options.tokens, options.sequence_length),
      options_(options) {}

MemoryLedger Engine::plan() const {
  // The counting pass leaves addresses empty and is repeated by build().
  auto* self = const_cast<Engine*>(this);
  MemoryLedger ledger = Arena::measure([self](Arena& arena) {
    self->params_.allocate(arena);
    self->decoder_.allocate(arena, self->options_.recompute);
  });
  ledger.add("scratch", exec_.scratch_bytes());
  return ledger;
}

void Engine::build() {
  arena_.build([this](Arena& arena) {
    params_.allocate(arena);
    decoder_.allocate(arena, options_.recompute);
  });
  decoder_.fill_tables();
}

StepContext Engine::context(const MicroBatch& batch) {
  return {.exec = exec_,
          .params = params_,
          .ids = batch.ids,
          .labels = batch.labels,
          .positions = batch.positions,
          .segments = {.offsets = batch.segments},
          .cos_sin = decoder_.cos_sin()};
}

void Engine::refresh(StepContext& c) {
  const int64_t offset = exec_.token_offset;
  exec_.token_offset = 0;  // a weight's elements do not count tokens
  decoder_.refresh_weights(c);
  exec_.token_offset = offset;
}

void Engine::begin_step(uint32_t step) {
  exec_.step = step;
  exec_.token_offset = 0;
  sums_ = {};
  amax_trouble_.clear();
  weights_fresh_ = false;
  params_.begin_step();
}

void Engine::micro_step(const MicroBatch& batch, int64_t valid, double z_weight, std::vector<TensorError>* errors) {
  StepContext c = context(batch);
  c.errors = errors;
  exec_.pass = Pass::kForward;
  if (!weights_fresh_) refresh(c);
  weights_fresh_ = true;
  const float scale = valid > 0 ? 1.0f / static_cast<float>(valid) : 0.0f;
  const std::string trouble = decoder_.forward_backward(c, &sums_, &scale, static_cast<float>(z_weight));
  if (amax_trouble_.empty()) amax_trouble_ = trouble;
  exec_.token_offset += batch.ids.count();
}

double Engine::grad_norm() {
  double sum = 0;
  for (int id = 0; id < params_.size(); ++id) sum += sum_of_squares(exec_, params_.grad(id));
  return std::sqrt(sum);
}

UpdateResult Engine::update(const AdamwSettings& s) {
  UpdateResult result;
  result.grad_norm = grad_norm();
  if (!std::isfinite(result.grad_norm)) {
    for (int id = 0; id < params_.size(); ++id) {
      const int64_t at = first_nonfinite(exec_, params_.grad(id));
      if (at >= 0)
        fail(Exit::kNonFinite, "gradient of {} {} is not finite at element {}", params_.spec(id).name, params_.grad(id),
             at);
    }
    fail(Exit::kNonFinite, "gradient norm {} overflows although every gradient is finite", result.grad_norm);
  }
  AdamwStep step{.lr = static_cast<float>(s.lr),
                 .beta1 = static_cast<float>(s.beta1),
                 .beta2 = static_cast<float>(s.beta2),
                 .eps = static_cast<float>(s.eps),
                 .grad_scale = 1,
                 .t = ++updates_};
  // torch.nn.utils.clip_grad_norm_: scale by max_norm / (norm + 1e-6), never up.
  if (s.grad_clip > 0) step.grad_scale = static_cast<float>(std::min(1.0, s.grad_clip / (result.grad_norm + 1e-6)));
  const bool stochastic = params_.options().weights == WeightMode::kBF16SR;
  int64_t unmoved = 0;
  for (int id = 0; id < params_.size(); ++id) {
    step.weight_decay = params_.spec(id).decays() ? static_cast<float>(s.weight_decay) : 0.0f;
    unmoved += adamw(exec_, params_.updated(id), params_.has_master() ? params_.weight(id) : Tensor{}, params_.grad(id),
                     params_.m(id), params_.v(id), step, stochastic, static_cast<uint32_t>(id));
  }
  weights_fresh_ = false;
  result.unmoved_share = static_cast<double>(unmoved) / static_cast<double>(params_.count());
  return result;
}

void Engine::evaluate(const MicroBatch& batch, LossSums& sums) {
  StepContext c = context(batch);
  if (!weights_fresh_) {
    PassScope evaluation(exec_, Pass::kEvaluate);
    refresh(c);
    weights_fresh_ = true;
  }
  decoder_.evaluate(c, &sums);
}

void Engine::logits(const MicroBatch& batch, Tensor out) {
  StepContext c = context(batch);
  PassScope evaluation(exec_, Pass::kEvaluate);
  refresh(c);
  decoder_.logits(c, out);
}

void Engine::find_nonfinite(const MicroBatch& batch) {
  for (int id = 0; id < params_.size(); ++id) {
    const int64_t at = first_nonfinite(exec_, params_.weight(id));
    if (at >= 0) fail(Exit::kNonFinite, "parameter {} is not finite at element {}", params_.spec(id).name, at);
  }
  StepContext c = context(batch);
  c.check_finite = true;
  PassScope evaluation(exec_, Pass::kEvaluate);
  refresh(c);
  LossSums sums;
  decoder_.evaluate(c, &sums);
}

}  // namespace mantissa
