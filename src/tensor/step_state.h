// What a step tells its ops, in one place that they read by its address: on a GPU it lies in the device's memory beside
// the batch, so that a captured graph holds no value of a step.
#pragma once

#include <cstdint>

namespace mantissa {

struct StepState {
  uint64_t seed = 0;         // of the run's random streams
  int64_t token_offset = 0;  // tokens of this step before the micro-batch: random bits do not depend on the layout
  uint32_t step = 0;         // of the optimizer
  float grad_scale = 0;      // factor of the loss's gradient: 1 / labelled tokens of the step, times a loss scale
  float z_weight = 0;        // of the sum of lse² in the loss
};

}  // namespace mantissa
