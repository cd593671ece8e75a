// One pre-norm decoder block: norm, attention, norm, MLP; forward and backward side by side.
#pragma once

#include <memory>

#include "model/arch/arch.h"
#include "model/layers/linear.h"
#include "model/layers/norm.h"
#include "model/precision.h"

namespace mantissa {

// What backward finds in memory and what it computes again. All plans give the same bits.
enum class Recompute : uint8_t {
  kNone,     // everything is kept
  kNormAct,  // norm and activation outputs are computed again
  kBlock,    // the block's input alone is kept
};
Recompute parse_recompute(const std::string& name);  // none | norm+act | block

// Memory that all blocks use one after another.
struct BlockRegions {
  Region forward{"activations, shared"};  // transient forms and dropped slots
  Region backward{"activation gradients"};
};

class Block {
 public:
  Block(const ModelConfig& model, const PrecisionConfig& precision, const ParamStore& params, int64_t index,
        const RecipeTarget& target);

  // Slots for T tokens; called within both regions. dh [T,H] is the gradient of the residual stream.
  void allocate(Arena& arena, BlockRegions& regions, int64_t tokens, Recompute recompute, Tensor dh);

  // The block's input x[T,H]: the first block's is written by the embedding.
  Tensor input() const { return x_; }
  // The residual stream after attention: the block's output is mid() + delta.
  Tensor mid() const { return mid_; }

  // x = previous_mid + delta (first block: x as it stands, previous_mid empty); delta [T,H] becomes the MLP's output.
  // A replay starts from x as it was saved and leaves the last product out.
  void forward(StepContext& context, ConstTensor previous_mid, Tensor delta);
  // dh [T,H]: gradient of the block's output in, of its input out.
  void backward(StepContext& context, Tensor dh, Tensor delta);

  std::vector<Linear*> linears() { return {&qkv_, &out_, &up_, &down_}; }

 private:
  void attention_forward(StepContext& context);
  void activation(StepContext& context);

  ModelConfig model_;
  ArchTraits traits_;
  std::string name_;
  DType dtype_;
  float scale_;  // of the attention scores, 1/sqrt(D)
  Producer norm_producer_;
  Recompute recompute_ = Recompute::kNone;
  Norm attention_norm_, mlp_norm_;
  Linear qkv_, out_, up_, down_;
  int q_norm_ = -1, k_norm_ = -1;

  // Saved activations (slots), T tokens.
  Tensor x_;  // [T,H]
  NormStats x_stats_;
  Operand qkv_in_;            // [T,H]
  Tensor qkv_raw_, qk_rstd_;  // [T,(N+2KV)D] before QK-norm, [T,N+KV]
  Tensor qkv_out_;            // [T,(N+2KV)D] as attention reads it
  Tensor attention_, lse_;    // [T,ND], [N,T]
  Operand out_in_;            // [T,ND]
  Tensor mid_;                // [T,H]
  NormStats mid_stats_;
  Operand up_in_;    // [T,H]
  Tensor up_out_;    // [T,2F] SwiGLU, [T,F] GELU
  Operand down_in_;  // [T,F]

  // Gradients of one block.
  Operand ddown_, dup_, dout_, dqkv_;
  Tensor dact_, dnorm_, dattention_;
};

}  // namespace mantissa
