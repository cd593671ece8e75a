// The comparison in plain words: what to pick for speed at a given loss, what each recipe costs, what is noise.
#pragma once

#include <string>
#include <vector>

#include "report/run_reader.h"

namespace mantissa::report {

struct Noise {
  double nats = 0;  // a difference of losses below this says nothing
  std::string how;  // how it was estimated, one clause
  bool known = false;
};

// From the spread over seeds of the rows' differences to their baselines where the rows were repeated, of their losses
// where only that was kept (twice the largest); else from the step-by-step differences of
// each row to its baseline over the last tenth of the steps (twice the largest standard error of their mean), which
// sees the jitter within one seed only, and says so.
Noise estimate_noise(const ReportData& data);

struct Pick {
  const CompareRow* row;
  double above;  // loss above the lowest native loss, nats
};

// Speeds closer than this share count as equal: timings of one machine vary that much.
inline constexpr double kSpeedTie = 0.02;

// Native rows that no native row at least as fast (within kSpeedTie) beats in loss, fastest first: each is the one to
// pick when its loss is the most that is acceptable. Emulated rows have no speed of their own and are not among them.
std::vector<Pick> native_front(const CompareResult& result);

struct RecipeCost {
  std::string recipe;
  int rows = 0, inside_noise = 0;
  double least = 0, most = 0;  // delta_loss over its rows
  bool emulated = false;       // any of its rows is
};

// In the order of the rows; the baselines have no cost.
std::vector<RecipeCost> recipe_costs(const CompareResult& result, const Noise& noise);

struct Verdict {
  std::string headline;                // one or two sentences
  std::vector<std::string> sentences;  // plain text, to be escaped by the writer
};

Verdict judge(const ReportData& data);

// The comparison of a report, or the runs of a report without one as rows that have no baseline.
CompareResult rows_of(const ReportData& data);

// "fp8-delayed (linear+logits) with bf16 weights"
std::string row_words(const CompareRow& row);

}  // namespace mantissa::report
