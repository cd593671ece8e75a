#include "generation/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "model/arch/arch.h"
#include "model/decoder.h"
#include "ops/activation.h"
#include "ops/cached_attention.h"
#include "ops/embedding.h"
#include "ops/gemm.h"
#include "ops/norm.h"

namespace mantissa {
namespace {

constexpr int64_t kPassTokens = 256;  // of a prompt at once: bounds the activations, and fills the products
constexpr const char* kActivations = "activations";

struct Matrix {
  int weight = -1, bias = -1;  // bias -1: none
};

struct Layer {
  Matrix attention_norm, qkv, out, mlp_norm, up, down;
  int q_norm = -1, k_norm = -1;
  KvCache cache;
};

Matrix find_matrix(const ParamStore& params, const std::string& name) {
  return {params.find(name + ".weight"), params.find_or_none(name + ".bias")};
}

void check_room(const ModelConfig& model, int64_t max_tokens) {
  if (max_tokens < 1 || max_tokens > model.max_position_embeddings)
    fail(Exit::kUsage, "a context of {} tokens: the model has {} positions (max_position_embeddings)", max_tokens,
         model.max_position_embeddings);
  if (max_tokens > kCachedAttentionMaxTokens)
    fail(Exit::kUsage, "a context of {} tokens: at most {} are generated with", max_tokens, kCachedAttentionMaxTokens);
}

}  // namespace

struct Generator::Impl {
  // exec and params are null in a plan.
  Impl(Exec* exec_in, const ModelConfig& model_in, const ParamStore* params_in, DType dtype_in, int64_t max)
      : exec(exec_in), model(model_in), traits(find_arch(model.arch).traits), params(params_in), dtype(dtype_in) {
    check_room(model, max);
    max_tokens = max;
    pass_tokens = std::min(max, kPassTokens);
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)));
    layers.resize(static_cast<size_t>(model.num_hidden_layers));
  }

  void find_params() {
    embedding = params->find(param_names::kEmbedding);
    head = model.tie_word_embeddings ? embedding : params->find(param_names::kHead);
    if (!traits.rope) positions = params->find(param_names::kPositions);
    final_norm = find_matrix(*params, "final_norm");
    for (int64_t i = 0; i < model.num_hidden_layers; ++i) {
      Layer& layer = layers[static_cast<size_t>(i)];
      const auto matrix = [&](const char* leaf) { return find_matrix(*params, param_names::layer(i, leaf)); };
      layer.attention_norm = matrix("attention_norm"), layer.mlp_norm = matrix("mlp_norm");
      layer.qkv = matrix("attention.qkv"), layer.out = matrix("attention.out");
      layer.up = matrix("mlp.up"), layer.down = matrix("mlp.down");
      if (!traits.qk_norm) continue;
      layer.q_norm = params->find(param_names::layer(i, "attention.q_norm.weight"));
      layer.k_norm = params->find(param_names::layer(i, "attention.k_norm.weight"));
    }
  }

  void allocate(Allocator& memory) {
    const HeadLayout heads = model.heads();
    const int64_t t = pass_tokens, h = model.hidden_size, f = model.intermediate_size;
    for (Layer& layer : layers) layer.cache = make_kv_cache(memory, dtype, heads, max_tokens);
    if (traits.rope) cos_sin = memory.tensor("tables", DType::kF32, {max_tokens, model.head_dim});
    const auto slot = [&](int64_t cols) { return memory.tensor(kActivations, dtype, {t, cols}); };
    x = slot(h), normed.high = slot(h), delta = slot(h);
    qkv = slot(heads.qkv_cols()), attention = slot(heads.heads * heads.head_dim);
    up = slot(traits.mlp == MlpKind::kSwiglu ? 2 * f : f), activated.high = slot(f);
    rstd = memory.tensor(kActivations, DType::kF32, {t});
    mean = memory.tensor(kActivations, DType::kF32, {t});
    qk_rstd = memory.tensor(kActivations, DType::kF32, {t, heads.heads + heads.kv_heads});
    position = memory.tensor(kActivations, DType::kI32, {t});
    token = memory.tensor(kActivations, DType::kI32, {t});
    logits = memory.tensor("logits", DType::kF32, {1, head_rows()});
  }

  // Columns of the logits: the vocabulary as the head lies in memory.
  int64_t head_rows() const { return params ? params->padded_rows(head) : model.vocab_size; }

  ConstTensor weight(int id) const { return id < 0 ? ConstTensor{} : ConstTensor(params->weight(id)); }

  void multiply(Tensor y, ConstTensor in, const Matrix& m) {
    gemm(*exec, {.a = GemmSide::plain(in),
                 .b = GemmSide::plain(params->padded_weight(m.weight)),
                 .c = y,
                 .bias = weight(m.bias)});
  }

  void write(const Tensor& to, const int32_t* from) {
    if (exec->device())
      exec->device()->copy_in(to.data, from, to.bytes());
    else
      std::memcpy(to.data, from, static_cast<size_t>(to.bytes()));
  }

  // y = norm(h) for h = the first rows of x, to which `residual` (if given) is added first.
  void norm(Operand& y, Tensor h, ConstTensor residual, const Matrix& m) {
    const int64_t t = h.dim(0);
    const Tensor r = rstd.slice(0, t), u = mean.slice(0, t);
    const auto eps = static_cast<float>(model.norm_eps);
    const ConstTensor w = weight(m.weight), b = weight(m.bias);
    if (traits.norm == NormKind::kRms)
      residual ? add_rms_norm_fwd(*exec, y, r, h, h, residual, w, eps) : rms_norm_fwd(*exec, y, r, h, w, eps);
    else
      residual ? add_layer_norm_fwd(*exec, y, u, r, h, h, residual, w, b, eps)
               : layer_norm_fwd(*exec, y, u, r, h, w, b, eps);
  }

  // Tokens of one pass; the last one's logits where it ends the context.
  void pass(std::span<const int32_t> ids, bool last) {
    const auto t = static_cast<int64_t>(ids.size());
    const HeadLayout heads = model.heads();
    std::array<int32_t, kPassTokens> places;
    std::iota(places.begin(), places.begin() + t, static_cast<int32_t>(length));
    write(position.slice(0, t), places.data());
    write(token.slice(0, t), ids.data());
    const ConstTensor where = position.slice(0, t);
    const Tensor h = x.slice(0, t), d = delta.slice(0, t), q = qkv.slice(0, t), a = attention.slice(0, t);
    Operand in, act;
    in.high = normed.high.slice(0, t), act.high = activated.high.slice(0, t);
    embedding_fwd(*exec, h, token.slice(0, t), weight(embedding), where, weight(positions));
    ConstTensor residual;
    for (Layer& layer : layers) {
      norm(in, h, residual, layer.attention_norm);
      multiply(q, in.high, layer.qkv);
      if (traits.qk_norm)
        qk_norm_rope_fwd(*exec, q, qk_rstd.slice(0, t), q, weight(layer.q_norm), weight(layer.k_norm), cos_sin, where,
                         heads, static_cast<float>(model.norm_eps));
      else if (traits.rope)
        rope_fwd(*exec, q, q, cos_sin, where, heads);
      cached_attention(*exec, a, layer.cache, length, q, heads, scale);
      multiply(d, a, layer.out);
      norm(in, h, d, layer.mlp_norm);
      const Tensor u = up.slice(0, t);
      multiply(u, in.high, layer.up);
      traits.mlp == MlpKind::kSwiglu ? swiglu_fwd(*exec, act, u) : gelu_fwd(*exec, act, u);
      multiply(d, act.high, layer.down);
      residual = d;
    }
    length += t;
    if (!last) return;
    Operand row;
    row.high = in.high.slice(t - 1, 1);
    norm(row, h.slice(t - 1, 1), residual.slice(t - 1, 1), final_norm);
    multiply(logits, row.high, {head, -1});
  }

  Exec* exec;
  const ModelConfig model;
  const ArchTraits traits;
  const ParamStore* params;
  const DType dtype;
  int64_t max_tokens = 0, pass_tokens = 0, length = 0;
  float scale = 1;
  int embedding = -1, positions = -1, head = -1;
  Matrix final_norm;
  std::vector<Layer> layers;

  Arena arena;
  Tensor cos_sin, position, token;      // [P,D], [T] i32
  Tensor x, delta, qkv, attention, up;  // of a pass
  Operand normed, activated;            // [T,H], [T,F]
  Tensor rstd, mean, qk_rstd;           // [T], [T], [T,N+KV]
  Tensor logits;                        // [1,V], on a GPU with padding
  std::vector<float> host_logits;       // GPU: [V]
};

Generator::Generator(Exec& exec, const ModelConfig& model, const ParamStore& params, int64_t max_tokens)
    : impl_(std::make_unique<Impl>(&exec, model, &params, params.compute_dtype(), max_tokens)) {
  impl_->find_params();
  impl_->arena.build([this](Arena& arena) { impl_->allocate(arena); }, exec.device());
  if (impl_->traits.rope) fill_rope_table(model, impl_->cos_sin, exec.device());
  if (!exec.device()) return;
  impl_->host_logits.resize(static_cast<size_t>(model.vocab_size));
  const int64_t scratch =
      std::max(kGemmScratchBytes, cached_attention_scratch_bytes(model.heads(), impl_->max_tokens, 1));
  if (exec.shared_scratch_bytes() < scratch) exec.reserve_scratch(scratch);
}

Generator::~Generator() = default;

MemoryLedger Generator::plan(const ModelConfig& model, DType dtype, int64_t max_tokens) {
  Impl impl(nullptr, model, nullptr, dtype, max_tokens);
  return Arena::measure([&impl](Arena& arena) { impl.allocate(arena); });
}

void Generator::reset(int64_t length) {
  check(length >= 0 && length <= impl_->length, "generator: {} of {} tokens cannot be kept", length, impl_->length);
  impl_->length = length;
}

int64_t Generator::length() const { return impl_->length; }
int64_t Generator::max_tokens() const { return impl_->max_tokens; }

std::span<const float> Generator::append(std::span<const int32_t> ids) {
  Impl& g = *impl_;
  const auto n = static_cast<int64_t>(ids.size());
  check(n > 0 && n <= g.max_tokens - g.length, "generator: {} tokens behind {}, expected 1 to {}", n, g.length,
        g.max_tokens - g.length);
  PassScope evaluation(*g.exec, Pass::kEvaluate);
  for (int64_t begin = 0; begin < n; begin += g.pass_tokens) {
    const int64_t count = std::min(g.pass_tokens, n - begin);
    g.pass(ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)), begin + count == n);
  }
  if (!g.exec->device()) return {g.logits.as<float>(), static_cast<size_t>(g.model.vocab_size)};
  const auto bytes = static_cast<int64_t>(g.host_logits.size() * sizeof(float));
  g.exec->device()->copy_out(g.host_logits.data(), g.logits.data, bytes);
  return g.host_logits;
}

}  // namespace mantissa
