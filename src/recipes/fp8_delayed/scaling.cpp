#include "recipes/fp8_delayed/scaling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace mantissa {

float update_delayed_scale(float scale, float* history, int64_t slots, const DelayedRule& rule) {
  const int64_t length = rule.history_len;
  const float last = history[0];
  if (last == 0) return scale;
  float largest = std::fmax(0.0f, last);  // fmax leaves NaN out
  for (int64_t i = 1; i < length; ++i) largest = std::fmax(largest, history[i * slots]);
  for (int64_t i = 1; i + 1 < length; ++i) history[i * slots] = history[(i + 1) * slots];
  history[(length - 1) * slots] = last;
  history[0] = 0;
  const float amax = rule.most_recent ? last : largest;
  if (!std::isfinite(amax) || !(amax > 0)) return scale;
  return std::min(rule.numerator / amax, FLT_MAX);
}

void DelayedScaling::allocate(Arena& arena) {
  scale_ = arena.tensor("scaling state", DType::kF32, {slots_});
  next_ = arena.tensor("scaling state", DType::kF32, {slots_});
  history_ = arena.tensor("scaling state", DType::kF32, {rule_.history_len, slots_});
  if (scale_) std::fill_n(scale_.as<float>(), slots_, 1.0f);
}

void DelayedScaling::raise(int slot, float amax) {
  float& row0 = history_.as<float>()[slot];
  if (amax > row0 || std::isnan(amax)) row0 = amax;
}

std::string DelayedScaling::update(const std::string& layer, std::initializer_list<const char*> slot_names) {
  publish();  // of an update whose backward was left out
  std::string nonfinite;
  for (int slot = 0; slot < slots_; ++slot) {
    float* history = history_.as<float>() + slot;
    const float amax = history[0], scale = scale_.as<float>()[slot];
    const float next = update_delayed_scale(scale, history, slots_, rule_);
    next_.as<float>()[slot] = next;
    if (!std::isfinite(amax))
      nonfinite += fmt::format("{}{} {}: amax is {}, scale {} -> {}", nonfinite.empty() ? "" : "; ", layer,
                               slot_names.begin()[slot], amax, scale, next);
  }
  pending_ = true;
  return nonfinite;
}

void DelayedScaling::publish() {
  if (!pending_) return;
  std::copy_n(next_.as<float>(), slots_, scale_.as<float>());
  pending_ = false;
}

}  // namespace mantissa
