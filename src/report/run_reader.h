// What `train` and `compare` left in a directory, read back: run.json, metrics.jsonl, result.json; compare.json.
// Errors are Exit::kInput and name the file, the line or key, what was found and what was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace mantissa::report {

using Number = std::optional<double>;  // empty: not recorded, or null in the file

// One training step of metrics.jsonl.
struct StepLine {
  int64_t step = 0;
  double tokens = 0;   // seen so far
  double seconds = 0;  // since the first step began
  Number loss;         // nats a token
  Number grad_norm, lr, tokens_per_s, mfu;
  Number data_wait_s;  // of the step, until its batches were there
};

struct EvalLine {
  int64_t step = 0;
  double tokens = 0, seconds = 0;
  Number eval_loss;
};

// Error of one quantized tensor at one step.
struct QuantLine {
  int64_t step = 0;
  std::string layer, tensor;  // tensor: input, weight or grad
  double amax = 0, scale = 0;
  Number snr_db;                      // empty: exact, no error at all
  double saturated = 0, flushed = 0;  // shares of the elements, 0 to 1
};

// A generation of samples.jsonl.
struct SampleLine {
  int64_t step = 0, tokens = 0;
  std::string prompt, text, stop;
};

struct Metrics {
  std::vector<StepLine> steps;
  std::vector<EvalLine> evals;
  std::vector<QuantLine> quantization;
  int64_t torn = 0;                  // last line without its end: the run was cut while writing it
  int64_t rewound = 0;               // lines that a later line of the same or an earlier step replaced
  std::vector<std::string> unknown;  // keys of this file that this version does not read
};

// One row of a comparison, or one run on its own.
struct CompareRow {
  std::string name, weights, recipe;
  std::string scope;                   // none, linear, linear+logits, linear+logits+norm
  std::string path;                    // native, emulated; empty before the row has started
  std::string dir;                     // the row's run directory, relative to the comparison
  std::string note;                    // what its recipe and scope do not say: layers that precision.rules took
  Number loss, eval_loss, delta_loss;  // nats a token
  std::vector<double> losses;          // by seed; empty where the file has none
  Number loss_spread;                  // standard deviation over seeds
  Number delta_spread;                 // of the difference to the baseline, seed by seed
  Number tokens_per_s, seconds;
  Number mfu, nanogpt_legacy_v1, combined_formula_v2, component_summation_v2025;  // fractions
  Number memory_pct;                                                              // percent

  bool ended() const { return loss.has_value(); }
  bool emulated() const { return path == "emulated"; }
  // The row that delta_loss of the same weights is taken from.
  bool baseline() const { return scope == "none" && delta_loss.value_or(0.0) == 0.0; }
};

struct CompareResult {
  std::string dir, version, config, baseline;
  Json machine, data, model, seeds;  // as written; null where absent
  std::vector<CompareRow> rows;
  // Rows of the finished comparison: key "rows_planned", or the number of rows where that key is absent.
  int64_t planned = 0;

  int64_t ended() const;
};

// One run directory.
struct Run {
  std::filesystem::path dir;
  std::string label;   // unique within a report
  Json info;           // run.json
  Json result;         // result.json; null while the run has not ended
  std::string config;  // text of config.yaml, or empty
  Metrics metrics;
  std::vector<SampleLine> samples;  // in the order of the file
  CompareRow row;                   // the comparison's row, or one made from run.json and result.json
};

// All that one report shows.
struct ReportData {
  std::optional<CompareResult> compare;  // the first comparison named; a row table is made of all runs without one
  std::vector<Run> runs;                 // in the order of the rows, then of the directories named
  std::vector<std::string> notes;        // what is missing or was tolerated, one sentence each
};

inline constexpr uint64_t kMaxRecordBytes = uint64_t{16} << 20;  // of run.json, result.json and compare.json
inline constexpr uint64_t kMaxLineBytes = uint64_t{8} << 20;     // of metrics.jsonl and samples.jsonl
inline constexpr size_t kMaxRows = 1000;                         // of a comparison

Metrics read_metrics(const std::filesystem::path& file);
// A last line without its end is left out.
std::vector<SampleLine> read_samples(const std::filesystem::path& file);
CompareResult parse_compare(const Json& json, const std::string& where);
CompareResult read_compare(const std::filesystem::path& dir);
Run read_run(const std::filesystem::path& dir);
// Each directory is a run or a comparison; a comparison brings the runs of its rows.
ReportData read_all(const std::vector<std::filesystem::path>& dirs);

// "compare.json: rows[3]": where a row of a comparison stands.
std::string row_place(const CompareResult& result, size_t row);
// The folder of a row's repeat: `dir` for the first seed.
std::filesystem::path seed_folder(const CompareResult& result, const CompareRow& row, size_t repeat);

// The baseline run that belongs to `run`: same weights; null for a baseline itself and where there is none.
const Run* baseline_run(const ReportData& data, const Run& run);

}  // namespace mantissa::report
