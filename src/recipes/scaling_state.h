// The scaling state of a model's layers, moved together: on a GPU one kernel a direction, without a word of the host.
#pragma once

#include <string>
#include <vector>

#include "recipes/recipe.h"

namespace mantissa {

class ScalingState {
 public:
  // Layers in their order, before allocate(); each must outlive this.
  void add(const std::string& layer, const LinearRecipe& recipe);
  // The table of slots; after the layers' own allocate() in the same pass.
  void allocate(Arena& arena);
  // Once memory is there: fills the table. `device`: where the memory is; null: the host.
  void fill_table(Device* device);
  // Of a fresh model: scales become 1.
  void start();

  // Once after the forward, once after the backward of each training micro-batch; never in a replay or an evaluation.
  // Casts up to end_backward() read the scales that their forward read, so a replay is bitwise equal; a micro-batch
  // whose backward is left out calls end_backward() all the same.
  void end_forward(Exec& exec);
  void end_backward(Exec& exec);

  // The first slot, in the order of slots, whose amax was not finite since forget_trouble():
  // "layers.0.mlp.down_proj input: amax is inf, scale 1 -> 1"; or "". A GPU is waited for.
  std::string trouble() const;
  void forget_trouble();

 private:
  struct Layer {
    std::string name;
    const LinearRecipe* recipe;
  };
  struct Name {
    std::string layer;
    const char* tensor;
  };
  // Forward slots of all layers, then backward ones.
  std::vector<DelayedSlot> collect(std::vector<Name>* names = nullptr) const;

  std::vector<Layer> layers_;
  std::vector<Name> names_;
  DelayedSlots slots_;
  int64_t forward_ = 0;  // slots of the forward
  Device* device_ = nullptr;
};

}  // namespace mantissa
