// Whether what a finished run or comparison left is whole and agrees with itself: keys, steps, losses, folders.
#pragma once

#include "report/run_reader.h"

namespace mantissa::report {

// run.json has what a run writes into it; with result.json every step stands in metrics.jsonl and its figures are those
// of the steps. Without result.json the run has not finished: a cut last line is no fault. Exit::kInput names what is
// not so.
void check_run(const Run& run);

// `run` is repeat `repeat` of rows[row]: the same precision, and the loss that compare.json gives.
void check_row(const CompareResult& result, size_t row, size_t repeat, const Run& run);

// Rows that belong together: at least one, a folder of its own for each that has ended and each of its seeds, losses
// that are their means, deltas to the baseline.
void check_comparison(const CompareResult& result);

// How many folders a row that has ended has: one a seed.
size_t repeats_of(const CompareRow& row);

}  // namespace mantissa::report
