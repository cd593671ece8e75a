#include "train/engine.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/loss.h"
#include "ops/norm.h"

namespace mantissa {
namespace {

DType choose(const std::string& wanted, WeightMode weights, const char* key) {
  const bool full = weights == WeightMode::kF32 || weights == WeightMode::kF32Master;
  if (wanted == "auto") return full ? DType::kF32 : DType::kBF16;
  if (wanted == "8bit" && std::string_view(key) == "state") {
    if (weights == WeightMode::kF32)
      fail(Exit::kUsage, "optimizer.{}: 8bit, but recipe fp32 keeps everything in FP32", key);
    return DType::kU8;
  }
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
          .training = options.training,
          .device = options.device,
          .gpu = options.gpu};
}

EngineOptions resolved(EngineOptions options) {
  if (options.device) options.gpu = true;
  if (options.max_segments == 0) options.max_segments = options.tokens;
  return options;
}

}  // namespace

Engine::Engine(const ModelConfig& model, const PrecisionConfig& precision, const EngineOptions& options)
    : options_(resolved(options)),
      exec_(options.device ? Exec(*options.device) : Exec()),
      params_(find_arch(model.arch).params(model), store_options(precision, options_)),
      decoder_(model, precision, params_, options.tokens, options.sequence_length) {}

void Engine::allocate(Arena& arena) {
  params_.allocate(arena);
  decoder_.allocate(arena, options_.recompute);
  if (!options_.gpu) return;
  device_batch_.allocate(arena, {.tokens = options_.tokens,
                                 .sequence_length = options_.sequence_length,
                                 .max_segments = options_.max_segments,
                                 .vocab = decoder_.model().vocab_size});
  outputs_ = static_cast<Outputs*>(arena.tensor("batch", DType::kU8, {int64_t{sizeof(Outputs)}}).data);
}

// The largest of what the ops of this model take.
int64_t Engine::gpu_scratch_bytes() const {
  const ModelConfig& m = decoder_.model();
  const HeadLayout heads = m.heads();
  const int64_t t = options_.tokens;
  const int64_t widest = std::max({m.hidden_size, 2 * m.intermediate_size, heads.qkv_cols()});
  int64_t bytes = std::max(
      {kGemmScratchBytes, cross_entropy_scratch_bytes(decoder_.logits_rows()),
       attention_scratch_bytes(params_.compute_dtype(), t, options_.sequence_length, options_.max_segments, heads)});
  if (options_.training)
    bytes = std::max({bytes, row_reduction_scratch_bytes(t, widest), adamw_scratch_bytes(optimized_),
                      embedding_scratch_bytes(t, std::max(m.vocab_size, m.max_position_embeddings), m.hidden_size)});
  return bytes;
}

MemoryLedger Engine::plan() const {
  MemoryLedger ledger = arena_.ledger();
  if (arena_.counting()) {
    // The counting pass leaves addresses empty and is repeated by build().
    auto* self = const_cast<Engine*>(this);
    ledger = Arena::measure([self](Arena& arena) { self->allocate(arena); });
    if (options_.training) self->optimized_ = params_.optimized();
  }
  ledger.add("scratch", options_.gpu ? gpu_scratch_bytes() : exec_.scratch_bytes());
  return ledger;
}

void Engine::build() {
  arena_.build([this](Arena& arena) { allocate(arena); }, options_.device);
  if (options_.training) optimized_ = params_.optimized();
  if (options_.device) {
    exec_.reserve_scratch(gpu_scratch_bytes());
    exec_.set_device_state(device_batch_.state);
  }
  decoder_.fill_tables(options_.device);
  decoder_.scaling().start();
}

StepContext Engine::context(const MicroBatch& batch) {
  if (!options_.device)
    return {.exec = exec_,
            .params = params_,
            .ids = batch.ids,
            .labels = batch.labels,
            .positions = batch.positions,
            .segments = {.offsets = batch.segments},
            .cos_sin = decoder_.cos_sin()};
  const DeviceBatch& on_device = device_batch_;
  device_batch_.upload(*options_.device, batch, exec_.state);
  return {.exec = exec_,
          .params = params_,
          .ids = on_device.ids,
          .labels = on_device.labels,
          .positions = on_device.positions,
          .segments = on_device.segments,
          .cos_sin = decoder_.cos_sin()};
}

void Engine::refresh(StepContext& c) {
  const int64_t offset = exec_.state.token_offset;
  exec_.state.token_offset = 0;  // a weight's elements do not count tokens
  decoder_.refresh_weights(c);
  exec_.state.token_offset = offset;
}

void Engine::begin_step(uint32_t step) {
  exec_.state.step = step;
  exec_.state.token_offset = 0;
  sums_ = {};
  sums_read_ = true;
  if (options_.device) options_.device->zero(&outputs_->step, sizeof outputs_->step);
  micro_steps_ = 0;
  decoder_.scaling().forget_trouble();
  weights_fresh_ = false;
  params_.begin_step();
}

void Engine::warm_up(const MicroBatch& batch) {
  if (!options_.device) return;
  std::vector<std::pair<StateTensor, std::vector<std::byte>>> scaling;
  visit_scaling([&](const StateTensor& state) {
    std::vector<std::byte> bytes(static_cast<size_t>(state.tensor.bytes()));
    read_state(state, bytes.data());
    scaling.emplace_back(state, std::move(bytes));
  });
  begin_step(0);
  exec_.state.grad_scale = 1.0f / static_cast<float>(options_.tokens);
  exec_.state.z_weight = 0;
  for (const bool first : {true, false}) {
    StepContext c = context(batch);
    exec_.pass = Pass::kForward;
    refresh(c);
    decoder_.forward_backward(c, &outputs_->step);
    graphs_.add({first, c.segments.uniform});
  }
  begin_step(0);
  for (const auto& [state, bytes] : scaling) write_state(state, bytes.data());
  options_.device->synchronize();
}

void Engine::micro_step(const MicroBatch& batch, int64_t valid, double z_weight, std::vector<TensorError>* errors) {
  exec_.state.grad_scale = valid > 0 ? 1.0f / static_cast<float>(valid) : 0.0f;
  exec_.state.z_weight = static_cast<float>(z_weight);
  StepContext c = context(batch);
  c.errors = errors;
  exec_.pass = Pass::kForward;
  if (!weights_fresh_) refresh(c);
  weights_fresh_ = true;
  if (!options_.device) {
    decoder_.forward_backward(c, &sums_);
  } else {
    const auto work = [&] { decoder_.forward_backward(c, &outputs_->step); };
    const StepVariant variant{micro_steps_ == 0, c.segments.uniform};
    exec_.keeps_high = errors != nullptr;
    if (!options_.graphs || errors)
      work();
    else if (!graphs_.run(*options_.device, variant, work))
      params_.mark_written();
    exec_.keeps_high = false;
    sums_read_ = false;
  }
  ++micro_steps_;
  exec_.state.token_offset += batch.ids.count();
}

const LossSums& Engine::sums() const {
  if (!sums_read_) options_.device->copy_out(&sums_, &outputs_->step, sizeof sums_);
  sums_read_ = true;
  return sums_;
}

double Engine::grad_norm() {
  double sum = 0;
  for (int id = 0; id < params_.size(); ++id) sum += sum_of_squares(exec_, params_.grad(id));
  return std::sqrt(sum);
}

AdamwOutcome Engine::run_adamw(const AdamwSettings& s) {
  const AdamwStep step{.lr = static_cast<float>(s.lr),
                       .beta1 = static_cast<float>(s.beta1),
                       .beta2 = static_cast<float>(s.beta2),
                       .eps = static_cast<float>(s.eps),
                       .weight_decay = static_cast<float>(s.weight_decay),
                       .grad_scale = 1,
                       .t = updates_ + 1};
  const bool stochastic = params_.options().weights == WeightMode::kBF16SR;
  AdamwOutcome outcome;
  adamw_update(exec_, options_.device ? &outputs_->update : &outcome, optimized_, step, s.grad_clip, stochastic);
  if (options_.device) options_.device->copy_out(&outcome, &outputs_->update, sizeof outcome);
  return outcome;
}

void Engine::fail_nonfinite(double norm) {
  for (int id = 0; id < params_.size(); ++id) {
    const int64_t at = first_nonfinite(exec_, params_.grad(id));
    if (at >= 0)
      fail(Exit::kNonFinite, "gradient of {} {} is not finite at element {}", params_.spec(id).name, params_.grad(id),
           at);
  }
  fail(Exit::kNonFinite, "gradient norm {} overflows although every gradient is finite", norm);
}

UpdateResult Engine::update(const AdamwSettings& settings) {
  const AdamwOutcome outcome = run_adamw(settings);
  if (!std::isfinite(outcome.grad_norm)) fail_nonfinite(outcome.grad_norm);
  ++updates_;
  weights_fresh_ = false;
  return {.grad_norm = outcome.grad_norm,
          .unmoved_share = static_cast<double>(outcome.unmoved) / static_cast<double>(params_.count())};
}

void Engine::evaluate(const MicroBatch& batch, LossSums& sums) {
  StepContext c = context(batch);
  if (!weights_fresh_) {
    PassScope evaluation(exec_, Pass::kEvaluate);
    refresh(c);
    weights_fresh_ = true;
  }
  if (!options_.device) return decoder_.evaluate(c, &sums);
  Device& device = *options_.device;
  device.copy_in(&outputs_->evaluation, &sums, sizeof sums);
  decoder_.evaluate(c, &outputs_->evaluation);
  device.copy_out(&sums, &outputs_->evaluation, sizeof sums);
}

void Engine::logits(const MicroBatch& batch, Tensor out) {
  StepContext c = context(batch);
  PassScope evaluation(exec_, Pass::kEvaluate);
  refresh(c);
  decoder_.logits(c, out);
}

void Engine::visit_scaling(const StateVisitor& f) {
  for (const Linear* linear : decoder_.linears())
    linear->recipe().visit_state([&](const char* name, Tensor tensor) {
      f({fmt::format("scaling/{}.{}", linear->name(), name), tensor, options_.device});
    });
}

void Engine::visit_state(const StateVisitor& f) {
  params_.visit_state(f);
  visit_scaling(f);
  f({"engine/updates", {&updates_, DType::kI64, {1}}});
  f({"engine/seed", {&exec_.state.seed, DType::kI64, {1}}});
  weights_fresh_ = false;
}

void Engine::expect_finite_parameters() {
  for (int id = 0; id < params_.size(); ++id) {
    const int64_t at = first_nonfinite(exec_, params_.weight(id));
    if (at >= 0) fail(Exit::kNonFinite, "parameter {} is not finite at element {}", params_.spec(id).name, at);
  }
}

void Engine::find_nonfinite(const MicroBatch& batch) {
  expect_finite_parameters();
  StepContext c = context(batch);
  c.check_finite = true;
  PassScope evaluation(exec_, Pass::kEvaluate);
  refresh(c);
  LossSums sums;
  decoder_.evaluate(c, options_.device ? &outputs_->evaluation : &sums);
}

}  // namespace mantissa
