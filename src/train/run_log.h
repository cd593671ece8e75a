// The files of a run's folder (docs/run_folder.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/line_file.h"
#include "recipes/recipe.h"

namespace mantissa {

struct StepReport;
struct EvalReport;
struct RunResult;
struct SampleReport;

class RunLog {
 public:
  // Into a folder where RunFolder::begin() made room. Exit::kStorage when it cannot be written.
  explicit RunLog(const std::string& folder);

  void write_config(const std::string& yaml);
  void write_info(const Json& info);
  void step(const StepReport& report);
  void evaluation(const EvalReport& report);
  void quantization(int64_t step, const std::vector<TensorError>& errors);
  void sample(const SampleReport& report);  // a line of samples.jsonl
  // The lines are on the disk before result.json says that the run has ended.
  void finish(const RunResult& result);

 private:
  void line(const Json& json);
  std::string folder_;
  LineFile metrics_;
  std::optional<LineFile> samples_;
};

// JSON has no NaN or Inf: such a value is null.
Json finite_or_null(double x);

Json to_json(const RunResult& result);

}  // namespace mantissa
