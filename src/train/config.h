// The configuration of a run, of a comparison and of what may come with later versions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "device/device_config.h"
#include "generation/generator.h"
#include "model/precision.h"
#include "train/engine.h"
#include "train/schedule.h"

namespace mantissa {

class ModelFolder;

struct RunConfig {
  std::string name = "run", dir;  // dir "": runs/<name>
  int64_t seed = 42;
  std::string folder() const { return dir.empty() ? "runs/" + name : dir; }
};

struct BatchConfig {
  int64_t tokens = 8192;             // of an optimizer step
  std::string micro_batch = "auto";  // rows; auto: the whole step where it fits in memory, else halved until it does
};

struct OptimizerConfig {
  AdamwSettings adamw;
  std::string state = "auto", grads = "auto";
};

struct LossConfig {
  double z_loss = 0;  // weight of mean lse²
};

struct TrainSection {
  int64_t steps = 0;   // 0: from epochs
  int64_t tokens = 0;  // 0: from epochs; steps = ceil(tokens / batch.tokens)
  double epochs = 1;
  int64_t eval_every = 0;    // steps; 0: at the end alone
  int64_t eval_rows = 0;     // rows of an evaluation; 0: all
  int64_t sample_every = 0;  // steps; 0: off
  std::string recompute = "none";
  bool save_weights = true;  // RUN/model at the end
  std::string checkpoint_every = "30m";
  int64_t keep_last = 2, keep_every = 0;  // checkpoints; steps, 0: none
  bool keep_best = false;
  double disk_patience = 31;  // seconds
  std::string on_nonfinite = "stop";
  int64_t nonfinite_limit = 8;  // skipped steps in a row
};

// Generations during training, at train.sample_every.
struct SampleConfig {
  std::vector<std::string> prompts;  // empty: one, from the beginning of a document
  int64_t max_new_tokens = 64;
  SamplingSettings sampling;
};

struct LogConfig {
  bool console = true;
  int64_t every = 1;               // steps between lines of progress, where no terminal rewrites one line
  int64_t quantization_every = 0;  // steps between measurements of quantization error; 0: off
};

struct CompareConfig {
  std::vector<std::string> weights = {"fp32", "bf16"};
  std::vector<std::string> scopes = scope_names();
  int64_t seeds = 1;  // repeats of each row
  bool save_weights = false;
};

struct TrainConfig {
  RunConfig run;
  DeviceConfig device;
  std::string model_init;  // a Hugging Face folder or RUN@STEP; "": from scratch with `model`
  // Where the files of model_init lie, if not at that path; set by the owner, no key.
  std::shared_ptr<const ModelFolder> init_files;
  ModelConfig model;
  DataConfig data;
  int64_t data_tokens = 0;  // data.tokens: tokens of a pass, for `plan` where the files are not on the disk
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  PrecisionConfig precision;
  LossConfig loss;
  TrainSection train;
  SampleConfig sample;
  LogConfig log;
  CompareConfig compare;

  void describe(config::Fields& fields);
  // After parsing, `model` holding model_init's sizes where there is one: fills derived values and checks what can be
  // checked without data.
  void resolve();
  // Throws Exit::kUsage for a recipe option that no recipe in use reads; a comparison uses precision.recipes too.
  void refuse_unread(bool comparing) const;
  // Every recipe that a layer of the run, or of a row of the comparison, may have.
  std::vector<std::string> recipes(bool comparing) const;
  // What two starts must share to go on as one run: every value but the folder and what goes to the console. Which
  // device `auto` took is not in it: run_compare() holds that against what is recorded.
  std::string identity() const;
  // Throws Exit::kUsage, naming the first key that differs, where `recorded`, a dump of the config or its identity by
  // this version or an earlier one, is another run's than this. The message begins with `what`, as "runs/a: holds a
  // finished run".
  void refuse_other(const std::string& recorded, const std::string& what) const;
  // What a checkpoint and the run that goes on from it share: every value that the bits of its steps follow from, as
  // far as no figure says it better (steps, rows of a micro-batch, contents of the data's files, the device).
  std::string numerics() const;
  // Whether the same run but for its length: train.steps, tokens and epochs.
  bool differs_in_length_alone(const std::string& recorded) const;
  // Optimizer steps: train.steps; else ceil(train.tokens / batch.tokens); else the whole steps that the epochs fill, at
  // least 1.
  int64_t steps(int64_t pass_tokens) const;
  // The Hugging Face folder to start from.
  std::string init_folder() const;
  int64_t rows_per_step() const { return batch.tokens / data.sequence_length; }
};

// The identity of the config whose dump `recorded` is: keys that its version did not have take their defaults, those
// that are no part of an identity too. A text that is no config of this version is given back as it is.
std::string identity_of(const std::string& recorded);
std::string numerics_of(const std::string& recorded);

}  // namespace mantissa
