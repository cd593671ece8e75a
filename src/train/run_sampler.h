// Generations of the configured prompts while a model trains. They read the weights and change nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "generation/text_generation.h"
#include "train/config.h"
#include "train/events.h"

namespace mantissa {

class RunSampler {
 public:
  // Tokens of the prompts, as the data's documents or examples begin: with the tokens that the post-processor puts
  // there, under data.chat_template, with data.prompt_suffix. Exit::kUsage where the data has no tokenizer or a prompt
  // leaves no room in the model's positions. Nothing is allocated for the model yet.
  RunSampler(const TrainConfig& config, const Dataset& data);

  // What build() takes, by the lengths of the prompts in bytes; 0 where nothing is sampled.
  static int64_t planned_bytes(const TrainConfig& config);
  // Once, before the first step. `exec` and `params` must outlive the sampler.
  void build(Exec& exec, const ParamStore& params);

  bool due(int64_t step, int64_t steps) const { return every_ > 0 && (step % every_ == 0 || step == steps); }
  // Prompt i is drawn with seed + i, the same at every step. False as soon as `stop`, asked before each one, says so.
  bool run(int64_t step, const std::function<void(const SampleReport&)>& report, const std::function<bool()>& stop);

 private:
  int64_t every_;
  ModelConfig model_;
  SamplingSettings sampling_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::string> prompts_;
  std::vector<GenerationRequest> requests_;
  int64_t room_ = 0;
  std::unique_ptr<Generator> generator_;
};

}  // namespace mantissa
