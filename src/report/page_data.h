// The figures behind the page's charts, as compact JSON: columns, few digits, long series thinned out.
#pragma once

#include <vector>

#include "report/run_reader.h"

namespace mantissa::report {

inline constexpr size_t kMaxPoints = 2000;         // of one series on the page
inline constexpr size_t kMaxQuantSteps = 24;       // steps of one run with quantization errors, fewer with many layers
inline constexpr size_t kMaxQuantLayers = 1024;    // of one run, the first ones
inline constexpr size_t kMaxQuantCells = 3 << 14;  // steps x layers x tensors of one run

// Indices of at most `limit` lines that keep the shape: the first, the last and, in equal stretches, the lines with the
// lowest and highest loss, the highest gradient norm and the lowest speed. All lines where there are no more than
// `limit`.
std::vector<size_t> thinned(const std::vector<StepLine>& lines, size_t limit = kMaxPoints);

// {"compare", "series": [{label, recipe, weights, scope, path, baseline, step[], tokens[], seconds[], loss[],
// grad_norm[], lr[], tokens_per_s[], eval: {...}, quantization: {steps[], layers[], tensors[], snr_db[], saturated[],
// flushed[]}}]}; quantization columns run over steps, then layers, then tensors, null where nothing was recorded; an
// exact tensor (no error) has the SNR "exact".
Json page_data(const ReportData& data);

// A number of `digits` significant digits, or null.
Json rounded(const Number& value, int digits = 6);

}  // namespace mantissa::report
