// State of delayed scaling: scales for the coming casts from the amaxes of past ones.
// TransformerEngine's fused update; docs/numerics.md 3.2 to 3.5. Micikevicius et al. 2022, "FP8 formats for deep
// learning".
#pragma once

#include <initializer_list>

#include "recipes/recipe.h"

namespace mantissa {

// How a slot's next scale follows from its history.
struct DelayedRule {
  int64_t history_len = 1024;  // L: rows of the history, row 0 the accumulator of the current step
  bool most_recent = false;    // the newest amax alone counts, else the largest of the history
  float numerator = 448;       // largest value of the element format times 2^-margin
};

// One update of a slot whose history is a column of [L, slots]: `history` points at row 0, rows are `slots` floats
// apart. A zero accumulator neither rolls the history nor changes the scale; a non-finite amax keeps the scale. Returns
// the scale.
float update_delayed_scale(float scale, float* history, int64_t slots, const DelayedRule& rule);

// The slots of one direction of a layer.
class DelayedScaling {
 public:
  DelayedScaling(const DelayedRule& rule, int slots) : rule_(rule), slots_(slots) {}

  void allocate(Arena& arena);
  // What casts of `slot` read; fixed until publish().
  const float* scale(int slot) const { return scale_ ? scale_.as<float>() + slot : nullptr; }
  // Row 0 of the history takes the amax of a cast.
  void raise(int slot, float amax);
  // Works out the next scale of every slot and rolls the histories; casts read it from publish() on.
  // Returns the slots' non-finite amaxes as text, "" when all are finite.
  std::string update(const std::string& layer, std::initializer_list<const char*> slot_names);
  void publish();

  Tensor scales() const { return scale_; }     // [slots] f32
  Tensor history() const { return history_; }  // [L, slots] f32

 private:
  DelayedRule rule_;
  int slots_;
  Tensor scale_, next_, history_;
  bool pending_ = false;
};

}  // namespace mantissa
