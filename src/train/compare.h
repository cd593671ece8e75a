// The same run under several precision settings, one after another; resumable by whole rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/run_train.h"

namespace mantissa {

// One row: a precision setting. `scope` is "none" for the BF16 baseline.
struct CompareRowSpec {
  std::string name, weights, recipe, scope, dir;  // dir relative to the comparison: "rows/03-fp32-fp8-delayed-linear"
};

// Baselines of each weights dtype, then scope by scope, recipe by recipe, each with every weights dtype.
std::vector<CompareRowSpec> compare_rows(const TrainConfig& config);
// The config that a row trains.
TrainConfig row_config(const TrainConfig& config, const CompareRowSpec& row, int64_t repeat);

// `started` is called for each row, and for each repeat of one.
struct CompareHooks : RunHooks {
  // A row begins or went on from an earlier start (`done`).
  std::function<void(size_t index, size_t count, const CompareRowSpec& row, bool done)> row_begins;
  // compare.json was written with one more row.
  std::function<void()> row_ended;
};

// Trains the rows that `folder` does not hold yet. compare.json is written after each. `restart` begins anew. Returns
// false when every row was there already. Throws Exit::kUsage when the folder holds a comparison of another config, of
// other data or of another kind of device: rows are compared on one alone.
bool run_compare(const TrainConfig& config, bool restart, const CompareHooks& hooks);

}  // namespace mantissa
