// What is kept of a step whose loss or gradient is not finite: RUN/nonfinite.json (docs/run_folder.md).
#pragma once

#include "base/json.h"
#include "data/loader.h"
#include "train/engine.h"

namespace mantissa {

// Between the step's micro-batches and the next step: `first_row` is the first of its rows in the data's order, `what`
// the error. Reads weights, gradients and scaling state, and changes none.
Json nonfinite_record(Engine& engine, const StepBatches& batches, int64_t step, int64_t first_row, double loss,
                      const std::string& what);

}  // namespace mantissa
