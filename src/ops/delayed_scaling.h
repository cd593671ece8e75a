// Scaling state of delayed scaling: scales for the coming casts from the amaxes of past ones.
// TransformerEngine's fused update; docs/numerics.md 3.2 to 3.5. Micikevicius et al. 2022, "FP8 formats for deep
// learning".
#pragma once

#include <cstdint>

#include "tensor/exec.h"

namespace mantissa {

// The scale of one kind of tensor of one layer. Addresses are in the memory of the Exec that moves it.
struct DelayedSlot {
  float* scale = nullptr;    // [1] what casts multiply by
  float* next = nullptr;     // [1] what they multiply by after the next publish_scales()
  float* history = nullptr;  // [length] f32, `stride` floats apart; casts raise the first (Quantized::raised)
  int64_t length = 0, stride = 1;
  float numerator = 448;     // largest value of the element format times 2^-margin
  bool most_recent = false;  // the newest amax alone counts, else the largest of the history

  // Of the last update whose amax was not finite.
  struct Fault {
    float amax = 0, scale = 0, next = 0;
  } fault;
};

struct DelayedSlots {
  DelayedSlot* slots = nullptr;  // [count], in the Exec's memory
  int64_t count = 0;
  // [1] in the Exec's memory: raised to count - i by an update of slot i whose amax is not finite; 0: there was none.
  uint32_t* fault = nullptr;
};

// Slots [begin, end): the next scale, and the history rolls. With h the history, its first element the amax since the
// last update: h[1 .. L-2] <- h[2 .. L-1], h[L-1] <- h[0], h[0] <- 0, and next = numerator / amax of the L newest, or
// of the newest. A zero amax neither rolls nor changes the scale; a non-finite one keeps it.
void update_scales(Exec& exec, const DelayedSlots& slots, int64_t begin, int64_t end);

// Casts read what the last update worked out.
void publish_scales(Exec& exec, const DelayedSlots& slots);

}  // namespace mantissa
