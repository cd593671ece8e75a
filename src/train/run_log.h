// The files of a run's folder (docs/run_folder.md).
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "recipes/recipe.h"

namespace mantissa {

struct StepReport;
struct EvalReport;
struct RunResult;
struct SampleReport;

class RunLog {
 public:
  // Makes the folder; metrics.jsonl begins anew, result.json and samples.jsonl of before go. Exit::kStorage when it
  // cannot be written.
  explicit RunLog(const std::string& folder);

  void write_config(const std::string& yaml);
  void write_info(const Json& info);
  void step(const StepReport& report);
  void evaluation(const EvalReport& report);
  void quantization(int64_t step, const std::vector<TensorError>& errors);
  void sample(const SampleReport& report);  // a line of samples.jsonl
  void finish(const RunResult& result);

 private:
  void line(const Json& json);
  void append(std::FILE* file, const char* name, const Json& json);
  struct Close {
    void operator()(std::FILE* f) const;
  };
  std::string folder_;
  std::unique_ptr<std::FILE, Close> metrics_, samples_;
};

// JSON has no NaN or Inf: such a value is null.
Json finite_or_null(double x);

Json to_json(const RunResult& result);

}  // namespace mantissa
