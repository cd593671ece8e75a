#include "train/compare_pace.h"

#include <map>

#include "train/step_bench.h"

namespace mantissa {
namespace {

// An evaluated row costs its forward, a third of a trained one.
constexpr double kForwardShare = 1.0 / 3;

// Steps of training, evaluations counted as the steps that would take as long.
double steps_of_row(const TrainConfig& config, const Dataset& data) {
  const int64_t steps = config.steps(data.tokens(Split::kTrain));
  const int64_t rows = data.report().validation.rows;
  const int64_t eval_rows = config.train.eval_rows > 0 ? std::min(config.train.eval_rows, rows) : rows;
  const int64_t every = config.train.eval_every;
  const int64_t evaluations = every > 0 ? (steps + every - 1) / every : 1;
  return static_cast<double>(steps) +
         kForwardShare * static_cast<double>(evaluations * eval_rows) / static_cast<double>(config.rows_per_step());
}

}  // namespace

void ComparePace::measure(const TrainConfig& config, const std::vector<CompareRowSpec>& rows, size_t first,
                          const Dataset& data, const std::function<bool()>& stop) {
  if (config.steps(data.tokens(Split::kTrain)) < kLeastSteps) return;
  std::map<std::pair<std::string, std::string>, double> seconds;  // of a step, by recipe and scope
  std::vector<double> foretold(rows.size(), 0.0);
  for (size_t i = first; i < rows.size(); ++i) {
    const auto [at, is_new] = seconds.try_emplace({rows[i].recipe, rows[i].scope}, 0.0);
    if (is_new && stop && stop()) return;
    if (is_new) at->second = step_seconds(row_config(config, rows[i], 0), data, kTimedSteps);
    foretold[i] = at->second * steps_of_row(config, data) * static_cast<double>(config.compare.seeds);
  }
  foretold_ = std::move(foretold);
}

void ComparePace::ended(size_t index, double seconds) {
  if (index < foretold_.size()) foretold_of_ended_ += foretold_[index];
  seconds_of_ended_ += seconds;
  ++rows_ended_;
}

std::optional<double> ComparePace::left(size_t index, size_t count) const {
  const auto rows = static_cast<double>(count - index);
  if (foretold_.empty())
    return rows_ended_ == 0 ? std::nullopt : std::optional(rows * seconds_of_ended_ / static_cast<double>(rows_ended_));
  double sum = 0;
  for (size_t i = index; i < count; ++i) sum += foretold_[i];
  return rows_ended_ == 0 ? sum : sum * seconds_of_ended_ / foretold_of_ended_;
}

}  // namespace mantissa
