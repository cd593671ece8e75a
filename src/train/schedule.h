// Learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace mantissa {

// wsd: warm-up, stable, decay over the last decay_fraction of the steps (linear, cosine or 1-sqrt; Hu et al. 2024).
// cosine: warm-up, then half a cosine down to min_ratio (Loshchilov and Hutter 2017). linear: warm-up, then a line down
// to min_ratio. constant: warm-up, then the peak.
struct ScheduleConfig {
  std::string name = "cosine";
  int64_t warmup_steps = 0;
  double min_ratio = 0;          // floor of the decay, as a share of the peak
  double decay_fraction = 0.2;   // wsd
  std::string decay = "cosine";  // wsd: linear | cosine | sqrt

  void describe(config::Fields& fields);
  // Throws Exit::kUsage when the schedule does not fit a run of `steps`.
  void validate(int64_t steps) const;
  // Factor on the peak learning rate at step 1..steps: the warm-up reaches 1 at step warmup_steps.
  double factor(int64_t step, int64_t steps) const;
};

}  // namespace mantissa
