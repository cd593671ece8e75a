// The model around its blocks: embedding, blocks, final norm, head and loss.
#pragma once

#include <memory>
#include <vector>

#include "model/block.h"
#include "ops/loss.h"
#include "recipes/scaling_state.h"

namespace mantissa {

class Decoder {
 public:
  // Throws Exit::kUsage when a layer's dimensions cannot be taken by its recipe at `tokens` a micro-batch.
  Decoder(const ModelConfig& model, const PrecisionConfig& precision, const ParamStore& params, int64_t tokens,
          int64_t sequence_length);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Activations, gradients and scaling state; run by Arena::build. fill_tables() follows the build.
  void allocate(Arena& arena, Recompute recompute);
  void fill_tables(Device* device = nullptr);

  // Makes the forms of all weights that the recipes read: first micro-batch of a step, before an evaluation.
  void refresh_weights(StepContext& context);

  // Forward and backward of one micro-batch of exactly `tokens` tokens. Parameter gradients accumulate those of
  // grad_scale * (sum of losses + z_weight * sum of lse²), with the factors of exec's step state; `sums` lies in exec's
  // memory. Scaling state moves.
  void forward_backward(StepContext& context, LossSums* sums);
  // Losses alone; no state moves.
  void evaluate(StepContext& context, LossSums* sums);
  // out [T,V] f32, in host memory
  void logits(StepContext& context, Tensor out);

  ConstTensor cos_sin() const { return cos_sin_; }
  int64_t tokens() const { return tokens_; }
  // Rows of the logits that exist at a time.
  int64_t logits_rows() const { return chunks_.rows; }
  const ModelConfig& model() const { return model_; }
  // Every linear layer, blocks in order, the head last.
  const std::vector<Linear*>& linears() const { return linears_; }
  ScalingState& scaling() { return scaling_; }

 private:
  struct HeadChunks {
    int64_t rows = 0, count = 0;
  };

  void forward(StepContext& context);
  // Final norm and logits of chunk i into logits_.
  void head_forward(StepContext& context, int64_t chunk);

  ModelConfig model_;
  ArchTraits traits_;
  DType dtype_;
  int64_t tokens_, sequence_length_;
  Producer norm_producer_;
  int embedding_, positions_ = -1;
  std::vector<std::unique_ptr<Block>> blocks_;
  Norm final_norm_;
  Linear head_;
  std::vector<Linear*> linears_;
  ScalingState scaling_;
  HeadChunks chunks_;

  BlockRegions regions_;
  Tensor cos_sin_;
  Tensor delta_, x_final_, dh_, dfinal_;  // [T,H]
  NormStats final_stats_;
  Operand head_in_;  // [R,H], R rows of a chunk
  Tensor logits_;    // [R,P], overwritten by its gradient; P = V but for a GPU's padding
  Operand dlogits_;
};

// cos and sin of P positions [P, D] f32: cos of the D/2 angles, then sin. Su et al. 2021; llama3 scaling as Hugging
// Face.
// `device`: where the table is; null: in host memory.
void fill_rope_table(const ModelConfig& model, Tensor cos_sin, Device* device = nullptr);

}  // namespace mantissa
