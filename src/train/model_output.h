// RUN/model: the weights that a run ends with, as a Hugging Face folder (docs/checkpoints.md).
#pragma once

#include <string>

#include "data/dataset.h"
#include "model/hf_export.h"
#include "train/config.h"

namespace mantissa {

class ModelOutput {
 public:
  // Before a run begins: makes `run_folder` and removes the `model` folder of a run before. With train.save_weights:
  // Exit::kStorage when the file system has no room for the weights. Exit::kUsage when RUN/model holds other files.
  ModelOutput(const TrainConfig& config, const Dataset& data, const std::string& run_folder);

  // Writes RUN/model in the dtype that updates happened in and returns "runs/a/model · BF16 · 1.2 GiB"; "" without
  // train.save_weights. Exit::kStorage when it cannot be written.
  std::string write(const ParamStore& params) const;

 private:
  ModelConfig model_;
  std::string folder_;
  bool saves_;
  HfExport options_;
};

// Tokenizer files and token ids that go with a model trained on `data`.
HfExport export_options(const TrainConfig& config, const Dataset& data);

}  // namespace mantissa
