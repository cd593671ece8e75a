#include "model/flops.h"

namespace mantissa {

int64_t count_parameters(const ModelConfig& model) {
  int64_t n = 0;
  for (const ParamSpec& spec : find_arch(model.arch).params(model)) n += spec.shape.count();
  return n;
}

FlopsPerToken flops_per_token(const ModelConfig& m, int64_t sequence_length, double segment_length,
                              Recompute recompute) {
  const auto s = static_cast<double>(sequence_length), h = static_cast<double>(m.hidden_size);
  const auto layers = static_cast<double>(m.num_hidden_layers), v = static_cast<double>(m.vocab_size);
  const auto qw = static_cast<double>(m.num_attention_heads * m.head_dim);
  const auto kw = static_cast<double>(m.num_key_value_heads * m.head_dim);
  const auto groups = static_cast<double>(m.num_attention_heads) / static_cast<double>(m.num_key_value_heads);
  const double mlp_matrices = find_arch(m.arch).traits.mlp == MlpKind::kSwiglu ? 6 : 4;
  const double mlp = mlp_matrices * h * static_cast<double>(m.intermediate_size);
  const double head = 2 * h * v;
  const double attention = 2 * h * qw + 4 * h * kw + 4 * s * qw + 2 * qw * h;  // full, of one layer

  FlopsPerToken f;
  f.mfu = 3 * (layers * (4 * h * qw + 4 * h * kw + 2 * segment_length * qw + mlp) + head);
  f.nanogpt_legacy_v1 = 6 * static_cast<double>(count_parameters(m)) + 12 * layers * qw * s;
  f.combined_formula_v2 = 3 * (layers * (2 * h * h * (2 + 2 / groups) + 4 * s * h + mlp) + head);
  f.component_summation_v2025 = 3 * (layers * (attention + mlp) + head);
  // A block's replay runs everything of the forward but the MLP's last product.
  const double replay = recompute == Recompute::kBlock ? layers * (attention + mlp - mlp / (mlp_matrices / 2)) : 0;
  f.hfu = f.component_summation_v2025 + replay;
  f.attention_to_ffn_ratio = attention / mlp;
  return f;
}

}  // namespace mantissa
