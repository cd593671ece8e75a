#include "model/decoder.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/quantize.h"

namespace mantissa {
namespace {

constexpr int64_t kLogitsBytes = int64_t{64} << 20;  // bound of one chunk of logits on a CPU
constexpr int64_t kLogitsRows = 8192;                // of one chunk on a GPU: more rows make its products no faster

// Rows of one chunk of logits: the tokens, halved until they are few enough. On a CPU a chunk that is not the whole is
// a multiple of 128 rows.
int64_t chunk_rows(int64_t tokens, int64_t row_bytes, bool gpu) {
  int64_t rows = tokens;
  if (gpu)
    while (rows > kLogitsRows && rows % 2 == 0) rows /= 2;
  else
    while (rows * row_bytes > kLogitsBytes && rows % 256 == 0) rows /= 2;
  return rows;
}

Linear make_head(const ModelConfig& model, const PrecisionConfig& precision, const ParamStore& params,
                 const RecipeTarget& target) {
  const int weight = params.find(model.tie_word_embeddings ? param_names::kEmbedding : param_names::kHead);
  const LinearSite site{"head", params.padded_rows(weight), model.hidden_size,
                        static_cast<uint32_t>(model.num_hidden_layers * 16)};
  const RecipeEntry& recipe = precision.recipe_of("head", -1, model.num_hidden_layers);
  return Linear(site, recipe.make(precision.options, site, target), weight, -1);
}

// What the layers are planned for: a GPU that is not there is taken for a Hopper.
RecipeTarget target_of(const ParamStoreOptions& options) {
  return {.gpu = options.gpu, .sm = options.device ? options.device->info().sm : 90};
}

void check_layer(const PrecisionConfig& precision, const ModelConfig& model, const Linear& linear, int64_t index,
                 int64_t m, const RecipeTarget& target) {
  const RecipeEntry& recipe = precision.recipe_of(linear.name(), index, model.num_hidden_layers);
  const RecipePath path = recipe.path(target);
  if (path.path == Path::kRefused)
    fail(Exit::kUnavailable, "{}: recipe {} {}", linear.name(), recipe.name, path.refusal);
  if (precision.path == "native" && path.path != Path::kNative)
    fail(Exit::kUnavailable,
         "precision.path: native, but {} has no {} matrix unit ({}); auto trains with exact emulation",
         target.gpu ? "this GPU" : "a CPU", recipe.name, linear.name());
  if (precision.path == "emulated" && path.path == Path::kNative && recipe.quantizes())
    fail(Exit::kUnavailable, "precision.path: emulated, but a GPU runs {} natively alone ({}); auto or native does",
         recipe.name, linear.name());
  recipe.check({linear.name(), linear.out_features(), linear.in_features(), 0}, m, target);
}

// The first columns of the logits in a device's memory, as F32 in host memory.
void download_logits(Device& device, Tensor out, ConstTensor logits) {
  constexpr int64_t kRows = 256;  // at a time
  const int64_t v = out.cols(), p = logits.cols();
  std::vector<std::byte> piece(static_cast<size_t>(bytes_of(logits.dtype, kRows * p)));
  for (int64_t begin = 0; begin < out.dim(0); begin += kRows) {
    const int64_t n = std::min(kRows, out.dim(0) - begin);
    device.copy_out(piece.data(), logits.slice(begin, n).data, bytes_of(logits.dtype, n * p));
    float* to = out.as<float>() + begin * v;
    for (int64_t r = 0; r < n; ++r)
      if (logits.dtype == DType::kF32) {
        std::memcpy(to + r * v, piece.data() + r * p * 4, static_cast<size_t>(v) * sizeof(float));
      } else {
        const auto* from = reinterpret_cast<const bf16*>(piece.data()) + r * p;
        for (int64_t i = 0; i < v; ++i) to[r * v + i] = to_float(from[i]);
      }
  }
}

}  // namespace

Decoder::Decoder(const ModelConfig& model, const PrecisionConfig& precision, const ParamStore& params, int64_t tokens,
                 int64_t sequence_length)
    : model_(model),
      traits_(find_arch(model.arch).traits),
      dtype_(params.compute_dtype()),
      tokens_(tokens),
      sequence_length_(sequence_length),
      norm_producer_(precision.fuses_norm() ? Producer::kFusedNorm : Producer::kPlain),
      embedding_(params.find(param_names::kEmbedding)),
      final_norm_(traits_.norm, model.norm_eps, params.find("final_norm.weight"),
                  traits_.norm == NormKind::kLayer ? params.find("final_norm.bias") : -1),
      head_(make_head(model, precision, params, target_of(params.options()))) {
  if (!traits_.rope) {
    positions_ = params.find(param_names::kPositions);
    if (sequence_length > model.max_position_embeddings)
      fail(Exit::kUsage, "data.sequence_length: {} exceeds the model's {} learned positions", sequence_length,
           model.max_position_embeddings);
  }
  const RecipeTarget target = target_of(params.options());
  for (int64_t i = 0; i < model.num_hidden_layers; ++i) {
    blocks_.push_back(std::make_unique<Block>(model, precision, params, i, target));
    for (Linear* linear : blocks_.back()->linears()) {
      check_layer(precision, model, *linear, i, tokens, target);
      linears_.push_back(linear);
    }
  }
  linears_.push_back(&head_);
  chunks_.rows = chunk_rows(tokens, bytes_of(dtype_, model.vocab_size), target.gpu);
  chunks_.count = tokens / chunks_.rows;
  check_layer(precision, model, head_, -1, chunks_.rows, target);
  for (const Linear* linear : linears_) scaling_.add(linear->name(), linear->recipe());
}

void Decoder::allocate(Arena& arena, Recompute recompute) {
  const int64_t t = tokens_, h = model_.hidden_size;
  const char* purpose = "activations";
  for (Linear* linear : linears_) linear->allocate(arena);
  scaling_.allocate(arena);
  if (traits_.rope) cos_sin_ = arena.tensor("tables", DType::kF32, {sequence_length_, model_.head_dim});
  delta_ = arena.tensor(purpose, dtype_, {t, h});
  x_final_ = arena.tensor(purpose, dtype_, {t, h});
  final_stats_ = final_norm_.make_stats(arena, t);
  dh_ = arena.tensor("activation gradients", dtype_, {t, h});
  dfinal_ = arena.tensor("activation gradients", dtype_, {t, h});
  head_in_ = head_.make_input(norm_producer_, chunks_.rows, dtype_, arena, arena);
  logits_ = arena.tensor("logits", dtype_, {chunks_.rows, head_.out_features()});
  dlogits_ = head_.make_grad(Producer::kPlain, chunks_.rows, dtype_, arena, logits_);
  regions_.forward.within(arena, [&] {
    regions_.backward.within(arena, [&] {
      for (auto& block : blocks_) block->allocate(arena, regions_, t, recompute, dh_);
    });
  });
}

void Decoder::fill_tables(Device* device) {
  scaling_.fill_table(device);
  if (traits_.rope) fill_rope_table(model_, cos_sin_, device);
}

void Decoder::refresh_weights(StepContext& context) {
  for (Linear* linear : linears_) linear->refresh_weight(context);
}

void Decoder::forward(StepContext& c) {
  check(c.ids.count() == tokens_, "decoder: micro-batch of {} tokens, planned for {}", c.ids.count(), tokens_);
  c.cos_sin = cos_sin_;
  embedding_fwd(c.exec, blocks_.front()->input(), c.ids, c.params.weight(embedding_), c.positions,
                positions_ < 0 ? ConstTensor{} : c.params.weight(positions_));
  check_finite(c, blocks_.front()->input(), "", "embedding output");
  ConstTensor previous;
  for (auto& block : blocks_) {
    block->forward(c, previous, delta_);
    previous = block->mid();
  }
  add(c.exec, x_final_, previous, delta_);
  check_finite(c, x_final_, "", "final residual");
}

void Decoder::head_forward(StepContext& c, int64_t chunk) {
  const int64_t begin = chunk * chunks_.rows, rows = chunks_.rows;
  NormStats stats = final_stats_;
  stats.rstd = stats.rstd.slice(begin, rows);
  if (stats.mean) stats.mean = stats.mean.slice(begin, rows);
  final_norm_.forward(c, head_in_, stats, x_final_.slice(begin, rows));
  head_.forward(c, logits_, head_in_);
}

void Decoder::forward_backward(StepContext& c, LossSums* sums) {
  forward(c);
  // Head and loss, chunk by chunk: the whole of the logits never exists.
  std::vector<TensorError>* errors = c.errors;
  for (int64_t i = 0; i < chunks_.count; ++i) {
    const int64_t begin = i * chunks_.rows;
    c.exec.row_offset = begin;
    c.errors = i == 0 ? errors : nullptr;
    head_forward(c, i);
    cross_entropy(c.exec, sums, logits_, model_.vocab_size, c.labels.slice(begin, chunks_.rows),
                  c.exec.state_address());
    dlogits_.high = logits_;
    quantize(c.exec, dlogits_);
    head_.backward(c, dfinal_.slice(begin, chunks_.rows), dlogits_, head_in_);
  }
  c.exec.row_offset = 0;
  c.errors = errors;
  scaling_.end_forward(c.exec);

  final_norm_.backward(c, dh_, dfinal_, x_final_, final_stats_, {});
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) (*block)->backward(c, dh_, delta_);
  for (const int id : {embedding_, positions_})
    if (id >= 0 && c.params.take_beta(id) == 0) c.params.zero_grad(id);
  embedding_bwd(c.exec, c.params.grad(embedding_), positions_ < 0 ? Tensor{} : c.params.grad(positions_), dh_, c.ids,
                c.positions);
  scaling_.end_backward(c.exec);
}

void Decoder::evaluate(StepContext& c, LossSums* sums) {
  PassScope evaluation(c.exec, Pass::kEvaluate);
  forward(c);
  for (int64_t i = 0; i < chunks_.count; ++i) {
    head_forward(c, i);
    check_finite(c, logits_, "", "logits");
    cross_entropy(c.exec, sums, logits_, model_.vocab_size, c.labels.slice(i * chunks_.rows, chunks_.rows), nullptr);
  }
}

void Decoder::logits(StepContext& c, Tensor out) {
  PassScope evaluation(c.exec, Pass::kEvaluate);
  forward(c);
  for (int64_t i = 0; i < chunks_.count; ++i) {
    head_forward(c, i);
    const Tensor rows = out.slice(i * chunks_.rows, chunks_.rows);
    if (c.exec.device())
      download_logits(*c.exec.device(), rows, logits_);
    else
      cast(c.exec, rows, logits_);
  }
}

}  // namespace mantissa
