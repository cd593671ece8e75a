// CPU kernel of loss.h.
#pragma once

#include "ops/cpu/dispatch.h"
#include "tensor/step_state.h"

namespace mantissa {

struct CrossEntropy {
  int64_t rows, cols, vocab;  // R, P, V: columns from V to P pad the matrix
  DType type;
  void* logits;            // [R,P], overwritten by the gradient where one is asked for
  const int32_t* labels;   // [R]
  const StepState* state;  // null: no gradient
  double* loss;            // [R] written: -log p(label), 0 for an ignored row
  double* lse;             // [R] written: log of the sum of exponentials, 0 for an ignored row
};

constexpr int32_t kIgnoredLabel = -100;

MANTISSA_CPU_KERNEL(void cross_entropy(const CrossEntropy& a))

}  // namespace mantissa
