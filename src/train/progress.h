// What a run has behind it, between two steps: with Engine::visit_state() all that going on in the same bits takes.
#pragma once

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
  double eval_loss = NAN;  // of the last evaluation

  // What the result adds up on the way.
  double tail_loss = 0;  // of the last tenth of the steps
  int64_t tail_steps = 0;
  double steady_seconds = 0;  // of the steps whose speed counts
  int64_t steady_steps = 0;
  double unmoved = 0;             // sum of UpdateResult::unmoved_share
  int64_t idle_steps = 0;         // without a label
  int64_t amax_steps = 0;         // with an amax that is not finite
  double first_step_seconds = 0;  // by the clock of the start that took it
};

// Every field by its name; what is not finite is null.
Json to_json(const Progress& progress);
// Exit::kInput for a field that is missing or no number; `name` is the file for the message.
Progress read_progress(const Json& json, const std::string& name);

}  // namespace mantissa
