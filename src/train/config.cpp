#include "train/config.h"

#include <algorithm>
#include <optional>

#include "base/config_difference.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/mds/prepared.h"
#include "data/tokenizer/tokenizer.h"
#include "train/checkpoint/interval.h"
#include "train/checkpoint_model.h"

namespace mantissa {
namespace {

// Rows of a comparison are told apart by name.
void refuse_twice(const char* key, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      fail(Exit::kUsage, "{}: {} is listed twice", key, names[i]);
}

// A name that would lead out of runs/, or be no file name at all.
void refuse_path(const std::string& name) {
  constexpr size_t kMost = 200;  // bytes; file systems take 255, and names of files beside it are longer
  const bool control = std::any_of(name.begin(), name.end(), [](char c) { return (c >= 0 && c < 32) || c == 127; });
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos || control ||
      name.size() > kMost)
    fail(Exit::kUsage,
         "run.name: \"{}\", expected the name of one folder: up to {} bytes, without /; run.dir takes a path",
         printable(name), kMost);
}

// Ids of what the data is or was encoded with.
int64_t vocabulary_of(const DataConfig& data) {
  for (const std::string& folder : {data.train, join_path(data.train, data.split)})
    if (mds::Prepared rows; !data.train.empty() && mds::read_prepared(folder, rows)) return rows.vocab_size;
  try {
    return Tokenizer::open(data.tokenizer).vocab_size();
  } catch (const Error& error) {
    fail(error.code(), "model.vocab_size: not given, and the tokenizer cannot be asked: {}", error.what());
  }
}

// Nothing where the text is of a version with other keys.
std::optional<TrainConfig> config_of(const std::string& recorded) {
  TrainConfig config;
  try {
    config::Source::from_text(recorded, "config").read([&config](config::Fields& f) { config.describe(f); });
  } catch (const Error&) {
    return std::nullopt;
  }
  return config;
}

}  // namespace

void TrainConfig::describe(config::Fields& fields) {
  fields.section("run", [this](config::Fields& f) {
    f.text("name", run.name, "name of the run, one path component; its folder is runs/<name>");
    refuse_path(run.name);
    f.text("dir", run.dir, "folder of the run; empty: runs/<name>");
    f.integer("seed", run.seed, "of weights, data order and stochastic rounding", {.min = 0});
  });
  fields.section("device", [this](config::Fields& f) { device.describe(f); });
  fields.section("model", [this](config::Fields& f) {
    f.text("init", model_init,
           "a Hugging Face folder, or RUN@STEP, to start from; empty: from scratch with the sizes below");
    model.describe(f);
  });
  fields.section("data", [this](config::Fields& f) {
    data.describe(f);
    f.integer("tokens", data_tokens, "plan: tokens of a pass where the files are not on this disk",
              {.min = 0, .max = 1e18});
  });
  fields.section("batch", [this](config::Fields& f) {
    f.integer("tokens", batch.tokens, "tokens of an optimizer step", {.min = 1, .max = 1 << 28});
    f.text("micro_batch", batch.micro_batch, "rows of a micro-batch, or auto: the most that memory holds");
  });
  fields.section("optimizer", [this](config::Fields& f) {
    std::string name = "adamw";
    std::vector<double> betas = {optimizer.adamw.beta1, optimizer.adamw.beta2};
    f.choice("name", name, {"adamw"}, "optimizer");
    f.number("lr", optimizer.adamw.lr, "peak learning rate", {.min = 0});
    f.numbers("betas", betas, "decay of the first and second moment");
    if (betas.size() != 2 || betas[0] < 0 || betas[0] >= 1 || betas[1] < 0 || betas[1] >= 1)
      fail(Exit::kUsage, "optimizer.betas: expected two numbers in [0, 1)");
    optimizer.adamw.beta1 = betas[0], optimizer.adamw.beta2 = betas[1];
    f.number("eps", optimizer.adamw.eps, "added to the root of the second moment", {.min = 0});
    f.number("weight_decay", optimizer.adamw.weight_decay, "decoupled; matrices and embeddings only", {.min = 0});
    f.number("grad_clip", optimizer.adamw.grad_clip, "largest global gradient norm; 0 = off", {.min = 0});
    f.choice("state", optimizer.state, {"auto", "fp32", "bf16", "8bit"},
             "moments; auto: the weights' dtype; 8bit: codes with a scale a block");
    f.choice("grads", optimizer.grads, {"auto", "fp32", "bf16"}, "accumulated gradients; auto: the weights' dtype");
  });
  fields.section("schedule", [this](config::Fields& f) { schedule.describe(f); });
  fields.section("precision", [this](config::Fields& f) { precision.describe(f); });
  fields.section("loss", [this](config::Fields& f) {
    f.number("z_loss", loss.z_loss, "weight of the mean squared log-partition", {.min = 0});
  });
  fields.section("train", [this](config::Fields& f) {
    f.integer("steps", train.steps, "optimizer steps; 0: from tokens or epochs", {.min = 0, .max = 1e10});
    f.integer("tokens", train.tokens, "tokens to train on; 0: from epochs", {.min = 0, .max = 1e18});
    f.number("epochs", train.epochs, "passes over the data, where neither steps nor tokens are given",
             {.min = 0, .max = 1e6});
    f.integer("eval_every", train.eval_every, "steps between evaluations; 0: at the end alone", {.min = 0});
    f.integer("eval_rows", train.eval_rows, "validation rows of an evaluation; 0: all", {.min = 0});
    f.integer("sample_every", train.sample_every,
              "steps between generations of the prompts in sample, and at the end; 0: off", {.min = 0});
    f.choice("recompute", train.recompute, {"none", "norm+act", "block"}, "activations that backward computes again");
    f.boolean("save_weights", train.save_weights, "keep the final weights as a Hugging Face folder, RUN/model");
    f.text("checkpoint_every", train.checkpoint_every,
           "steps (500) or time (90s, 30m, 1h) between checkpoints, and one at the end; 0: none");
    parse_checkpoint_interval(train.checkpoint_every, "train.checkpoint_every");
    f.integer("keep_last", train.keep_last, "newest checkpoints that stay", {.min = 1, .max = 1e6});
    f.integer("keep_every", train.keep_every, "steps; checkpoints at its multiples stay too; 0: none", {.min = 0});
    f.boolean("keep_best", train.keep_best,
              "an evaluation with the lowest loss so far makes a checkpoint, which stays until a lower one");
    f.number("disk_patience", train.disk_patience,
             "seconds that a disk which refuses a checkpoint is tried again, after 1, 2, 4, ... of them",
             {.min = 0, .max = 1e6});
    f.choice("on_nonfinite", train.on_nonfinite, {"stop", "skip"},
             "a loss or gradient that is not finite: stop with exit 5, or leave its step out");
    f.integer("nonfinite_limit", train.nonfinite_limit, "skip: steps in a row that may be left out", {.min = 1});
  });
  fields.section("sample", [this](config::Fields& f) {
    f.texts("prompts", sample.prompts, "texts to go on from; empty: one generation from the beginning of a document");
    f.integer("max_new_tokens", sample.max_new_tokens, "tokens of a generation at most", {.min = 1, .max = 1 << 20});
    sample.sampling.describe(f);
  });
  fields.section("log", [this](config::Fields& f) {
    f.boolean("console", log.console, "progress on the console");
    f.integer("every", log.every, "steps between lines of progress; a terminal shows each step on one line",
              {.min = 1});
    f.integer("quantization_every", log.quantization_every, "steps between measurements of quantization error; 0 = off",
              {.min = 0});
    f.unavailable("tensorboard", "TensorBoard files are not in this version; metrics.jsonl holds every figure");
    f.unavailable("wandb", "W&B files are not in this version; metrics.jsonl holds every figure");
  });
  fields.section("compare", [this](config::Fields& f) {
    f.texts("weights", compare.weights, "dtypes of the weights that are compared: fp32, bf16, bf16-sr");
    f.texts("scopes", compare.scopes, "how far the recipes that are compared reach, as precision.scope");
    f.integer("seeds", compare.seeds, "repeats of each row over seeds; the table then carries their spread",
              {.min = 1, .max = 100});
    f.boolean("save_weights", compare.save_weights, "keep the final weights of every row");
  });
}

void TrainConfig::resolve() {
  if (model.vocab_size == 0) model.vocab_size = vocabulary_of(data);
  model.resolve();
  if (data.sequence_length > model.max_position_embeddings)
    fail(Exit::kUsage,
         "data.sequence_length: {} is longer than the model's {} positions (model.max_position_embeddings{})",
         data.sequence_length, model.max_position_embeddings, model_init.empty() ? "" : " of " + model_init);
  data.model_folder = init_folder();
  data.model_vocab_size = model.vocab_size;
  precision.validate();
  precision.validate_rules(model.num_hidden_layers);
  device.validate();
  if (optimizer.state == "8bit" && find_recipe(precision.recipe).full_precision())
    fail(Exit::kUsage, "optimizer.state: 8bit, but recipe {} keeps everything in FP32", precision.recipe);
  if (compare.weights.empty())
    fail(Exit::kUsage, "compare.weights: empty, expected at least one of fp32, bf16, bf16-sr");
  refuse_twice("compare.weights", compare.weights);
  refuse_twice("compare.scopes", compare.scopes);
  for (const std::string& scope : compare.scopes)
    if (std::find(scope_names().begin(), scope_names().end(), scope) == scope_names().end())
      fail(Exit::kUsage, "compare.scopes: {}: expected {}", scope, join(scope_names(), ", "));
  refuse_twice("precision.recipes", precision.recipes);
  for (const std::string& weights : compare.weights)
    if (weights != "fp32" && weights != "bf16" && weights != "bf16-sr")
      fail(Exit::kUsage, "compare.weights: {}: expected fp32, bf16 or bf16-sr", weights);
  if (batch.tokens % data.sequence_length != 0)
    fail(Exit::kUsage, "batch.tokens: {} is not a multiple of data.sequence_length {}", batch.tokens,
         data.sequence_length);
  if (train.steps > 0 && train.tokens > 0) fail(Exit::kUsage, "train: give steps or tokens, not both");
  if (train.steps == 0 && train.tokens == 0 && train.epochs == 0)
    fail(Exit::kUsage, "train: steps, tokens and epochs are all 0, nothing would be trained");
}

void TrainConfig::refuse_unread(bool comparing) const {
  std::vector<const RecipeEntry*> in_use;
  for (const std::string& name : recipes(comparing)) in_use.push_back(&find_recipe(name));
  in_context("precision", [&] { refuse_unread_options(precision.options, in_use); });
}

std::vector<std::string> TrainConfig::recipes(bool comparing) const {
  std::vector<std::string> names = {precision.recipe};
  for (const PrecisionRule& rule : precision.rules) names.push_back(rule.recipe);
  if (comparing) names.insert(names.end(), precision.recipes.begin(), precision.recipes.end());
  std::vector<std::string> once;
  for (const std::string& name : names)
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  return once;
}

std::string TrainConfig::init_folder() const { return init_files ? init_files->path() : model_init; }

std::string TrainConfig::identity() const {
  TrainConfig c = *this;
  c.run.dir.clear();
  c.log.console = LogConfig{}.console;
  c.log.every = LogConfig{}.every;
  const TrainSection none;
  c.train.checkpoint_every = none.checkpoint_every;
  c.train.disk_patience = none.disk_patience;
  c.train.keep_last = none.keep_last, c.train.keep_every = none.keep_every, c.train.keep_best = none.keep_best;
  return config::dump([&c](config::Fields& f) { c.describe(f); });
}

std::string TrainConfig::numerics() const {
  TrainConfig c = *this;
  c.run = {.seed = run.seed};
  c.device.name = DeviceConfig{}.name;
  c.data.train.clear(), c.data.validation.clear(), c.data_tokens = 0;
  c.batch.micro_batch = BatchConfig{}.micro_batch;
  c.precision.recipes = PrecisionConfig{}.recipes;
  c.train = {.eval_rows = train.eval_rows};
  c.sample = {}, c.log = {}, c.compare = {};
  return config::dump([&c](config::Fields& f) { c.describe(f); });
}

bool TrainConfig::differs_in_length_alone(const std::string& recorded) const {
  const std::optional<TrainConfig> before = config_of(recorded);
  if (!before) return false;
  TrainConfig c = *this;
  c.train.steps = before->train.steps, c.train.tokens = before->train.tokens, c.train.epochs = before->train.epochs;
  return c.identity() == before->identity() && identity() != before->identity();
}

std::string identity_of(const std::string& recorded) {
  const std::optional<TrainConfig> config = config_of(recorded);
  return config ? config->identity() : recorded;
}

std::string numerics_of(const std::string& recorded) {
  const std::optional<TrainConfig> config = config_of(recorded);
  return config ? config->numerics() : recorded;
}

void TrainConfig::refuse_other(const std::string& recorded, const std::string& what) const {
  const config::Difference d =
      config::first_difference(identity_of(recorded), identity(), {"run.dir", "log.console", "log.every"});
  if (!d.key.empty())
    fail(Exit::kUsage,
         "{} of another config: {} is {} there, {} here; give another run.dir, or --restart to train anew", what, d.key,
         d.first, d.second);
}

int64_t TrainConfig::steps(int64_t pass_tokens) const {
  if (train.steps > 0) return train.steps;
  if (train.tokens > 0) return (train.tokens + batch.tokens - 1) / batch.tokens;
  const double tokens = train.epochs * static_cast<double>(pass_tokens);
  return std::max<int64_t>(1, static_cast<int64_t>(tokens / static_cast<double>(batch.tokens)));
}

}  // namespace mantissa
