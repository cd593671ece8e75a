// A run or a comparison directory such as train and compare leave, with made-up but plausible figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::report::testing {

// A folder below the test's temporary directory, removed with everything in it at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct Precision {
  std::string weights, recipe, scope;
};

// The twenty rows of a comparison, in its order.
std::vector<Precision> twenty_rows();

struct SyntheticOptions {
  int steps = 300;
  int ended = 20;       // rows that have ended; the next one is half done, the others have not started
  bool spread = false;  // loss_spread on every row
  int quant_steps = 10;
  std::string data_name = "gcide";  // goes into run.json and compare.json as it is
};

// DIR/run.json, metrics.jsonl, config.yaml and, when `ended`, result.json.
void write_run(const std::filesystem::path& dir, const Precision& precision, const SyntheticOptions& options,
               bool ended = true);
// DIR/compare.json and DIR/rows/NN-*.
void write_compare(const std::filesystem::path& dir, const SyntheticOptions& options);

void write_file(const std::filesystem::path& file, const std::string& text);

}  // namespace mantissa::report::testing
