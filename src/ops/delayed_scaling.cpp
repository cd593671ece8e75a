#include "ops/delayed_scaling.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "numerics/delayed_scale.h"
#include "ops/cuda/table.h"

namespace mantissa {
namespace {

float update_slot(const DelayedSlot& slot) {
  float* const h = slot.history;
  const int64_t length = slot.length, stride = slot.stride;
  const float newest = h[0];
  if (newest == 0) return *slot.scale;
  float largest = std::fmax(0.0f, newest);  // fmax leaves NaN out
  for (int64_t i = 1; i < length; ++i) largest = std::fmax(largest, h[i * stride]);
  for (int64_t i = 1; i + 1 < length; ++i) h[i * stride] = h[(i + 1) * stride];
  h[(length - 1) * stride] = newest;
  h[0] = 0;
  return next_delayed_scale(*slot.scale, slot.most_recent ? newest : largest, slot.numerator);
}

}  // namespace

void update_scales(Exec& exec, const DelayedSlots& slots, int64_t begin, int64_t end) {
  check(0 <= begin && begin <= end && end <= slots.count, "update_scales: slots {} to {} of {}", begin, end,
        slots.count);
  if (begin == end) return;
  if (exec.device()) return exec.gpu().update_scales(exec, slots, begin, end);
  for (int64_t i = begin; i < end; ++i) {
    DelayedSlot& slot = slots.slots[i];
    const float amax = slot.history[0];
    *slot.next = update_slot(slot);
    if (!is_nonfinite_amax(amax)) continue;
    slot.fault = {amax, *slot.scale, *slot.next};
    *slots.fault = std::max(*slots.fault, static_cast<uint32_t>(slots.count - i));
  }
}

void publish_scales(Exec& exec, const DelayedSlots& slots) {
  if (slots.count == 0) return;
  if (exec.device()) return exec.gpu().publish_scales(exec, slots);
  for (int64_t i = 0; i < slots.count; ++i) *slots.slots[i].scale = *slots.slots[i].next;
}

}  // namespace mantissa
