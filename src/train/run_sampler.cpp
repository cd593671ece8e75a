#include "train/run_sampler.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace mantissa {
namespace {

constexpr int64_t kAround = 64;  // tokens that a template and the post-processor put around a prompt, at most

// Positions for the longest prompt and its generation: a token stands for a byte at least.
int64_t room_of(const TrainConfig& config) {
  size_t longest = 0;
  for (const std::string& prompt : config.sample.prompts) longest = std::max(longest, prompt.size());
  longest += config.data.system_prompt.size() + config.data.prompt_suffix.size();
  return std::min(config.model.max_position_embeddings,
                  static_cast<int64_t>(longest) + kAround + config.sample.max_new_tokens);
}

std::vector<int32_t> tokens_of(const DataConfig& data, const Tokenizer& tokenizer, const std::string& prompt,
                               int32_t eos) {
  const ChatTemplate chat = chat_template_of(data);
  if (chat != ChatTemplate::kNone)
    return chat_prompt_tokens(tokenizer, chat, data.system_prompt, prompt, data.add_special_tokens);
  return prompt_tokens(tokenizer, data.fine_tuning() ? prompt + data.prompt_suffix : prompt, data.add_special_tokens,
                       eos);
}

}  // namespace

RunSampler::RunSampler(const TrainConfig& config, const Dataset& data)
    : every_(config.train.sample_every), model_(config.model), tokenizer_(data.tokenizer()) {
  if (every_ == 0) return;
  if (!tokenizer_)
    fail(Exit::kUsage, "train.sample_every: the data does not say what its tokens stand for; data.tokenizer does");
  prompts_ = config.sample.prompts;
  if (prompts_.empty()) prompts_.emplace_back();
  room_ = room_of(config);
  const std::string_view end = chat_end(chat_template_of(config.data));
  for (size_t i = 0; i < prompts_.size(); ++i) {
    GenerationRequest request;
    request.prompt = in_context(fmt::format("sample.prompts[{}]", i),
                                [&] { return tokens_of(config.data, *tokenizer_, prompts_[i], data.eos()); });
    const auto n = static_cast<int64_t>(request.prompt.size());
    if (n >= room_)
      fail(Exit::kUsage, "sample.prompts[{}]: {} tokens leave none of the model's {} positions", i, n,
           model_.max_position_embeddings);
    request.max_new_tokens = std::min(config.sample.max_new_tokens, room_ - n);
    request.sampling = config.sample.sampling;
    request.sampling.seed += static_cast<int64_t>(i);
    for (const int32_t id : {data.eos(), tokenizer_->eos(), end.empty() ? -1 : tokenizer_->find(end)})
      if (id >= 0) request.stop_tokens.push_back(id);
    requests_.push_back(std::move(request));
  }
}

int64_t RunSampler::planned_bytes(const TrainConfig& config) {
  if (config.train.sample_every == 0) return 0;
  const DType dtype = config.precision.weight_mode() == WeightMode::kF32 ? DType::kF32 : DType::kBF16;
  return Generator::plan(config.model, dtype, room_of(config)).total();
}

void RunSampler::build(Exec& exec, const ParamStore& params) {
  if (every_ > 0) generator_ = std::make_unique<Generator>(exec, model_, params, room_);
}

bool RunSampler::run(int64_t step, const std::function<void(const SampleReport&)>& report,
                     const std::function<bool()>& stop) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (stop && stop()) return false;
    const Generation g = generate(*generator_, *tokenizer_, requests_[i]);
    report({.step = step, .prompt = prompts_[i], .text = g.text, .tokens = g.tokens, .stop = g.stop});
  }
  return true;
}

}  // namespace mantissa
