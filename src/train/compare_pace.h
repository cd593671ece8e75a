// How long a comparison takes: a few steps of its rows before the first one trains, then the rows that have ended.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "train/compare.h"

namespace mantissa {

class ComparePace {
 public:
  // Rows `first` and on are still to be trained, on the CPU. Rows of a recipe and scope are timed once, those of fewer
  // than kLeastSteps steps are not: timing them would take more than about 1% of the comparison. `stop` is asked
  // between measurements; true: nothing is foretold.
  void measure(const TrainConfig& config, const std::vector<CompareRowSpec>& rows, size_t first, const Dataset& data,
               const std::function<bool()>& stop);
  // Row `index` has ended in `seconds`.
  void ended(size_t index, double seconds);
  // Seconds of rows `index` and on to `count`; empty where nothing is known yet. What the rows that have ended took
  // beside what was foretold of them scales the rest.
  std::optional<double> left(size_t index, size_t count) const;

  static constexpr int64_t kLeastSteps = 100;

 private:
  static constexpr int64_t kTimedSteps = 2;  // behind a first one, which is not counted

  std::vector<double> foretold_;  // by row; empty where none was measured
  double foretold_of_ended_ = 0, seconds_of_ended_ = 0;
  size_t rows_ended_ = 0;
};

}  // namespace mantissa
