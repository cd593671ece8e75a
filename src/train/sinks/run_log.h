// The files of a run's folder (docs/run_folder.md), which every run has: config.yaml, run.json, metrics.jsonl,
// samples.jsonl, result.json. Exit::kStorage when one cannot be written.
#pragma once

#include "train/sinks/sink.h"

namespace mantissa {

SinkEntry run_log_entry();

// JSON has no NaN or Inf: such a value is null.
Json finite_or_null(double x);

Json to_json(const RunResult& result);

}  // namespace mantissa
