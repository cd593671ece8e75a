// What a run has behind it, between two steps: with Engine::visit_state() all that going on in the same bits takes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/json.h"

namespace mantissa {

struct Progress {
  int64_t step = 0;        // steps that have ended
  int64_t tokens = 0;      // of them
  int64_t rows = 0;        // of the data's order that they took; the next step begins with this one
  double seconds = 0;      // since the first step began, of every start
  double run_seconds = 0;  // with set-up, of every start
  int64_t owes = 0;        // 1: the evaluation and the samples of the last step are still to come
  double eval_loss = NAN;  // of the last evaluation
  double best_loss = NAN;  // lowest of an evaluation, and after which step
  int64_t best_step = 0;

  // What the result adds up on the way.
  double tail_loss = 0;  // of the last tenth of the steps
  int64_t tail_steps = 0;
  double steady_seconds = 0;  // of the steps whose speed counts
  int64_t steady_steps = 0;
  double unmoved = 0;             // sum of UpdateResult::unmoved_share
  int64_t idle_steps = 0;         // without a label
  int64_t amax_steps = 0;         // with an amax that is not finite
  int64_t skipped = 0;            // that were not finite and not applied
  int64_t skipped_in_a_row = 0;   // of them, the last ones
  double first_step_seconds = 0;  // by the clock of the start that took it
};

// The last tenth of a run's steps, at least one, begins behind this one.
inline int64_t tail_begin(int64_t steps) { return steps - std::max<int64_t>(1, steps / 10); }

// Every field by its name; what is not finite is null.
Json to_json(const Progress& progress);
// Exit::kInput for a field that is missing or no number; `name` is the file for the message.
Progress read_progress(const Json& json, const std::string& name);

}  // namespace mantissa
