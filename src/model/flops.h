// FLOPs per token of training (3 x forward) by the field's formulas; norms, RoPE, activations and look-ups not counted.
#pragma once

#include "model/block.h"
#include "model/model_config.h"

namespace mantissa {

// S sequence length (row), QW = N D, KW = KV D, G = N / KV, L layers, H hidden, I intermediate, V vocabulary, P
// parameters; the MLP term 6 H I is 4 H I for a GELU MLP.
struct FlopsPerToken {
  double mfu = 0;                        // 3 (L (4 H QW + 4 H KW + 2 s QW + 6 H I) + 2 H V), causal, s = segment length
  double nanogpt_legacy_v1 = 0;          // 6 P + 12 L QW S (PaLM's heuristic: Chowdhery et al. 2022)
  double combined_formula_v2 = 0;        // 3 (L (2 H² (2 + 2/G) + 4 S H + 6 H I) + 2 H V)
  double component_summation_v2025 = 0;  // 3 (L (2 H QW + 4 H KW + 4 S QW + 2 QW H + 6 H I) + 2 H V)
  double hfu = 0;                        // component sum with what recompute runs again
  double attention_to_ffn_ratio = 0;     // forward FLOPs of a layer: projections, full scores and values over MLP
};

// segment_length: Σ s² / Σ s over the packed segments (S itself where every row is one document); only `mfu` uses it.
FlopsPerToken flops_per_token(const ModelConfig& model, int64_t sequence_length, double segment_length,
                              Recompute recompute);

// Parameters, a tied head counted once.
int64_t count_parameters(const ModelConfig& model);

}  // namespace mantissa
