#include "train/schedule.h"

#include <cmath>

#include "base/error.h"

namespace mantissa {

void ScheduleConfig::describe(config::Fields& f) {
  f.choice("name", name, {"wsd", "cosine", "linear", "constant"}, "learning-rate curve");
  f.integer("warmup_steps", warmup_steps, "steps of linear warm-up", {.min = 0});
  f.number("min_ratio", min_ratio, "floor of the decay as a share of the peak", {.min = 0, .max = 1});
  f.number("decay_fraction", decay_fraction, "wsd: share of the steps that decay", {.min = 0, .max = 1});
  f.choice("decay", decay, {"linear", "cosine", "sqrt"}, "wsd: shape of the decay");
}

void ScheduleConfig::validate(int64_t steps) const {
  if (warmup_steps > steps)
    fail(Exit::kUsage, "schedule.warmup_steps: {} is longer than the run of {} steps", warmup_steps, steps);
  if (name == "wsd") {
    const auto decaying = static_cast<int64_t>(std::llround(decay_fraction * static_cast<double>(steps)));
    if (warmup_steps + decaying > steps)
      fail(Exit::kUsage, "schedule: {} warm-up and {} decay steps do not fit a run of {} steps", warmup_steps, decaying,
           steps);
  }
}

double ScheduleConfig::factor(int64_t step, int64_t steps) const {
  if (step < warmup_steps) return static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (name == "constant") return 1;
  int64_t begin = warmup_steps;
  if (name == "wsd") begin = steps - static_cast<int64_t>(std::llround(decay_fraction * static_cast<double>(steps)));
  if (step <= begin || steps <= begin) return 1;
  const double x = static_cast<double>(step - begin) / static_cast<double>(steps - begin);  // (0, 1]
  const std::string& shape = name == "wsd" ? decay : name;
  double left = 1 - x;  // linear
  if (shape == "cosine") left = 0.5 * (1 + std::cos(3.14159265358979323846 * x));
  if (shape == "sqrt") left = 1 - std::sqrt(x);
  return min_ratio + (1 - min_ratio) * left;
}

}  // namespace mantissa
