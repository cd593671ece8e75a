// RUN/model: the weights that a run ends with, as a Hugging Face folder (docs/checkpoints.md).
#pragma once

#include <string>

#include "data/dataset.h"
#include "model/hf/export.h"
#include "train/config.h"
#include "train/run_folder.h"

namespace mantissa {

class ModelOutput {
 public:
  // Before a run begins. With train.save_weights: Exit::kStorage when the file system of `run_folder`, which need not
  // be there, has no room for the weights beside those of a run before.
  ModelOutput(const TrainConfig& config, const Dataset& data, const std::string& run_folder);

  // Writes the weights beside RUN/model, in the dtype that updates happened in, then puts them in its place. Returns
  // "runs/a/model · BF16 · 1.2 GiB". Without train.save_weights the model of a run before goes, and "" comes back.
  // Exit::kStorage when it cannot be written.
  std::string write(const ParamStore& params, RunFolder& run) const;

 private:
  ModelConfig model_;
  bool saves_;
  HfExport options_;
};

// Tokenizer files and token ids that go with a model trained on `data`.
HfExport export_options(const TrainConfig& config, const Dataset& data);
// The same of data with this tokenizer, null where it names none, whose documents end with `eos`, -1: none.
HfExport export_options(const TrainConfig& config, const Tokenizer* tokenizer, int32_t eos);

}  // namespace mantissa
