// A written model folder beside the one that it was made from.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/engine.h"

namespace mantissa {

// Logits of seeded random rows in FP32, through one engine whose weights are read from folder after folder.
class ExportCheck {
 public:
  // Exit::kMemory when the model does not fit in FP32.
  explicit ExportCheck(const ModelConfig& model);

  // Reads a folder, values rounded to `round_to`.
  void load(const std::string& folder, DType round_to = DType::kF32);
  const ParamStore& params() { return engine_.params(); }
  int64_t rows() const { return kRows; }
  int64_t row_tokens() const { return tokens_ / kRows; }

  // [T,V] of the weights that were read last.
  std::vector<float> logits();

  // Reads `folder` and holds its logits against `expected`, bit for bit; throws Exit::kInternal with the name of the
  // first tensor that differs from `source` rounded to `round_to`.
  void expect_logits(const std::string& folder, const std::vector<float>& expected, const std::string& source,
                     DType round_to);

 private:
  static constexpr int64_t kRows = 3;

  ModelConfig model_;
  int64_t tokens_;
  Engine engine_;
  std::vector<int32_t> ids_, labels_, positions_, segments_;
};

}  // namespace mantissa
