#include "model/block.h"

#include <cmath>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/quantize.h"
#include "ops/rope.h"

namespace mantissa {
namespace {

// Ids of the quantized tensors: four to a linear layer, four layers to a block.
uint32_t linear_id(int64_t block, int which) { return static_cast<uint32_t>(block * 4 + which) * 4; }

Linear make_linear(const PrecisionConfig& precision, const ModelConfig& model, const ParamStore& params, int64_t index,
                   int which, const RecipeTarget& target) {
  const std::string name = param_names::layer(index, param_names::kLinears[which]);
  const int weight = params.find(name + ".weight");
  const Shape& shape = params.spec(weight).shape;
  const LinearSite site{name, shape[0], shape[1], linear_id(index, which)};
  const RecipeEntry& recipe = precision.recipe_of(name, index, model.num_hidden_layers);
  return Linear(site, recipe.make(precision.options, site, target), weight, params.find_or_none(name + ".bias"));
}

Norm make_norm(const ModelConfig& model, const ParamStore& params, int64_t index, const char* leaf) {
  const std::string name = param_names::layer(index, leaf);
  return Norm(find_arch(model.arch).traits.norm, model.norm_eps, params.find(name + ".weight"),
              params.find_or_none(name + ".bias"));
}

}  // namespace

Recompute parse_recompute(const std::string& name) {
  if (name == "none") return Recompute::kNone;
  if (name == "norm+act") return Recompute::kNormAct;
  if (name == "block") return Recompute::kBlock;
  fail(Exit::kUsage, "train.recompute: {}: expected none, norm+act or block", name);
}

Block::Block(const ModelConfig& model, const PrecisionConfig& precision, const ParamStore& params, int64_t index,
             const RecipeTarget& target)
    : model_(model),
      traits_(find_arch(model.arch).traits),
      name_(fmt::format("layers.{}", index)),
      dtype_(params.compute_dtype()),
      scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)))),
      norm_producer_(precision.fuses_norm() ? Producer::kFusedNorm : Producer::kPlain),
      attention_norm_(make_norm(model, params, index, "attention_norm")),
      mlp_norm_(make_norm(model, params, index, "mlp_norm")),
      qkv_(make_linear(precision, model, params, index, 0, target)),
      out_(make_linear(precision, model, params, index, 1, target)),
      up_(make_linear(precision, model, params, index, 2, target)),
      down_(make_linear(precision, model, params, index, 3, target)) {
  if (traits_.qk_norm) {
    q_norm_ = params.find(name_ + ".attention.q_norm.weight");
    k_norm_ = params.find(name_ + ".attention.k_norm.weight");
  }
}

void Block::allocate(Arena& arena, BlockRegions& regions, int64_t t, Recompute recompute, Tensor dh) {
  recompute_ = recompute;
  const HeadLayout heads = model_.heads();
  const int64_t h = model_.hidden_size, f = model_.intermediate_size, q = heads.heads * heads.head_dim;
  const char* purpose = "activations";
  Region& shared = regions.forward;
  Allocator& slot = recompute == Recompute::kBlock ? static_cast<Allocator&>(shared) : arena;
  Allocator& cheap = recompute == Recompute::kNone ? static_cast<Allocator&>(arena) : shared;

  shared.rewind();
  // First in the region, so that the next block reads it while its own slots are being written.
  mid_ = slot.tensor(purpose, dtype_, {t, h});
  x_ = arena.tensor(purpose, dtype_, {t, h});
  x_stats_ = attention_norm_.make_stats(slot, t);
  qkv_in_ = qkv_.make_input(norm_producer_, t, dtype_, cheap, shared);
  if (traits_.qk_norm) {
    qkv_raw_ = slot.tensor(purpose, dtype_, {t, heads.qkv_cols()});
    qk_rstd_ = slot.tensor(purpose, DType::kF32, {t, heads.heads + heads.kv_heads});
  }
  qkv_out_ = slot.tensor(purpose, dtype_, {t, heads.qkv_cols()});
  attention_ = slot.tensor(purpose, dtype_, {t, q});
  lse_ = slot.tensor(purpose, DType::kF32, {heads.heads, t});
  out_in_ = out_.make_input(Producer::kPlain, t, dtype_, slot, shared, attention_);
  mid_stats_ = mlp_norm_.make_stats(slot, t);
  up_in_ = up_.make_input(norm_producer_, t, dtype_, cheap, shared);
  up_out_ = slot.tensor(purpose, dtype_, {t, traits_.mlp == MlpKind::kSwiglu ? 2 * f : f});
  down_in_ = down_.make_input(Producer::kActivation, t, dtype_, cheap, shared);

  Region& back = regions.backward;
  back.rewind();
  ddown_ = down_.make_grad(Producer::kPlain, t, dtype_, back, dh);
  dact_ = back.tensor(purpose, dtype_, {t, f});
  dup_ = up_.make_grad(Producer::kActivation, t, dtype_, back);
  dnorm_ = back.tensor(purpose, dtype_, {t, h});
  dout_ = out_.make_grad(Producer::kPlain, t, dtype_, back, dh);
  dattention_ = back.tensor(purpose, dtype_, {t, q});
  dqkv_ = qkv_.make_grad(Producer::kPlain, t, dtype_, back);
}

void Block::attention_forward(StepContext& c) {
  const HeadLayout heads = model_.heads();
  const Tensor raw = traits_.qk_norm ? qkv_raw_ : qkv_out_;
  qkv_.forward(c, raw, qkv_in_);
  if (traits_.qk_norm)
    qk_norm_rope_fwd(c.exec, qkv_out_, qk_rstd_, raw, c.params.weight(q_norm_), c.params.weight(k_norm_), c.cos_sin,
                     c.positions, heads, static_cast<float>(model_.norm_eps));
  else if (traits_.rope)
    rope_fwd(c.exec, qkv_out_, raw, c.cos_sin, c.positions, heads);
  attention_fwd(c.exec, attention_, lse_, qkv_out_, c.segments, heads, scale_);
  check_finite(c, attention_, name_, ".attention output");
  quantize(c.exec, out_in_);
}

void Block::activation(StepContext& c) {
  if (traits_.mlp == MlpKind::kSwiglu)
    swiglu_fwd(c.exec, down_in_, up_out_);
  else
    gelu_fwd(c.exec, down_in_, up_out_);
}

void Block::forward(StepContext& c, ConstTensor previous_mid, Tensor delta) {
  const bool replay = c.exec.pass == Pass::kReplay;
  if (previous_mid && !replay)
    attention_norm_.add_forward(c, qkv_in_, x_stats_, x_, previous_mid, delta);
  else
    attention_norm_.forward(c, qkv_in_, x_stats_, x_);
  check_finite(c, x_, name_, " input");
  attention_forward(c);
  out_.forward(c, delta, out_in_);
  mlp_norm_.add_forward(c, up_in_, mid_stats_, mid_, x_, delta);
  check_finite(c, mid_, name_, " residual after attention");
  up_.forward(c, up_out_, up_in_);
  activation(c);
  if (!replay) down_.forward(c, delta, down_in_);
}

void Block::backward(StepContext& c, Tensor dh, Tensor delta) {
  const HeadLayout heads = model_.heads();
  if (recompute_ == Recompute::kBlock) {
    PassScope replay(c.exec, Pass::kReplay);
    forward(c, {}, delta);
  }

  // MLP
  ddown_.high = dh;
  quantize(c.exec, ddown_);
  if (recompute_ == Recompute::kNormAct) {
    PassScope replay(c.exec, Pass::kReplay);
    activation(c);
  }
  down_.backward(c, dact_, ddown_, down_in_);
  if (traits_.mlp == MlpKind::kSwiglu)
    swiglu_bwd(c.exec, dup_, dact_, up_out_);
  else
    gelu_bwd(c.exec, dup_, dact_, up_out_);
  if (recompute_ == Recompute::kNormAct) {
    PassScope replay(c.exec, Pass::kReplay);
    mlp_norm_.forward(c, up_in_, mid_stats_, mid_);
  }
  up_.backward(c, dnorm_, dup_, up_in_);
  mlp_norm_.backward(c, dh, dnorm_, mid_, mid_stats_, dh);

  // Attention
  dout_.high = dh;
  quantize(c.exec, dout_);
  out_.backward(c, dattention_, dout_, out_in_);
  attention_bwd(c.exec, dqkv_.high, dattention_, qkv_out_, attention_, lse_, c.segments, heads, scale_);
  if (traits_.qk_norm)
    qk_norm_rope_bwd(c.exec, dqkv_.high, c.params.grad(q_norm_), c.params.grad(k_norm_), dqkv_.high, qkv_raw_, qk_rstd_,
                     c.params.weight(q_norm_), c.params.weight(k_norm_), c.cos_sin, c.positions, heads);
  else if (traits_.rope)
    rope_bwd(c.exec, dqkv_.high, dqkv_.high, c.cos_sin, c.positions, heads);
  quantize(c.exec, dqkv_);
  if (recompute_ == Recompute::kNormAct) {
    PassScope replay(c.exec, Pass::kReplay);
    attention_norm_.forward(c, qkv_in_, x_stats_, x_);
  }
  qkv_.backward(c, dnorm_, dqkv_, qkv_in_);
  attention_norm_.backward(c, dh, dnorm_, x_, x_stats_, dh);
}

}  // namespace mantissa
