// train_step: tokens a second of whole optimizer steps (forward, loss, backward, clipping, AdamW) of a Qwen3-shaped
// model on random tokens, one document a row. One JSON line per recipe; figures are medians over the steps of `seconds`
// after the warm-up. bench/torch_step.py measures the same in PyTorch.
//   train_step [recipe=bf16,fp32] [weights=bf16] [seconds=20] [batch=8] [sequence=512] [layers=6] [hidden=256]
//              [intermediate=768] [heads=4] [kv_heads=2] [head_dim=64] [vocab=256] [scope=linear]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "train/engine.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWarmupSteps = 3;

using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags = {{"recipe", "bf16,fp32"}, {"weights", "bf16"}, {"seconds", "20"},  {"batch", "8"},
                 {"sequence", "512"},     {"layers", "6"},     {"hidden", "256"},  {"intermediate", "768"},
                 {"heads", "4"},          {"kv_heads", "2"},   {"head_dim", "64"}, {"vocab", "256"},
                 {"scope", "linear"}};
  for (int i = 1; i < argc; ++i) {
    const std::vector<std::string> pair = split(argv[i], '=');
    if (pair.size() != 2 || !flags.contains(pair[0])) fail(Exit::kUsage, "train_step: {}: expected key=value", argv[i]);
    flags[pair[0]] = pair[1];
  }
  return flags;
}

int64_t integer(const Flags& flags, const std::string& key) {
  int64_t value = 0;
  if (!parse_int(flags.at(key), value) || value <= 0)
    fail(Exit::kUsage, "train_step: {}={}: expected a positive integer", key, flags.at(key));
  return value;
}

ModelConfig model_of(const Flags& flags) {
  ModelConfig model;
  model.vocab_size = integer(flags, "vocab");
  model.hidden_size = integer(flags, "hidden");
  model.intermediate_size = integer(flags, "intermediate");
  model.num_hidden_layers = integer(flags, "layers");
  model.num_attention_heads = integer(flags, "heads");
  model.num_key_value_heads = integer(flags, "kv_heads");
  model.head_dim = integer(flags, "head_dim");
  model.max_position_embeddings = integer(flags, "sequence");
  model.resolve();
  return model;
}

// A micro-batch of random tokens that keeps its memory.
struct RandomBatch {
  RandomBatch(int64_t rows, int64_t length, int64_t vocab) : vocab_(vocab) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t t = 0; t < length; ++t) positions.push_back(static_cast<int32_t>(t));
    for (int64_t row = 0; row <= rows; ++row) segments.push_back(static_cast<int32_t>(row * length));
    ids.resize(positions.size());
    labels.resize(positions.size());
  }
  void draw(std::mt19937& generator) {
    for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint64_t>(vocab_));
    labels = ids;
  }
  MicroBatch view() const {
    const auto of = [](const std::vector<int32_t>& v) {
      return ConstTensor(v.data(), DType::kI32, {static_cast<int64_t>(v.size())});
    };
    return {of(ids), of(labels), of(positions), of(segments)};
  }

  std::vector<int32_t> ids, labels, positions, segments;

 private:
  int64_t vocab_;
};

nlohmann::json measure(const Flags& flags, const std::string& recipe) {
  const ModelConfig model = model_of(flags);
  PrecisionConfig precision;
  precision.recipe = recipe;
  precision.scope = flags.at("scope");
  precision.weights = recipe == "fp32" ? "fp32" : flags.at("weights");
  const int64_t rows = integer(flags, "batch"), length = integer(flags, "sequence"), tokens = rows * length;
  Engine engine(model, precision, {.tokens = tokens, .sequence_length = length});
  engine.build();
  engine.initialize(1);
  RandomBatch batch(rows, length, model.vocab_size);
  std::mt19937 generator(1);
  uint32_t step = 0;
  double loss = 0;
  const auto run = [&] {
    batch.draw(generator);
    const Clock::time_point start = Clock::now();
    engine.begin_step(step++);
    engine.micro_step(batch.view(), tokens, 0);
    engine.update({.lr = 3e-3});
    loss = engine.sums().loss / static_cast<double>(tokens);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };

  // Untrained on random tokens: the loss is ln(vocabulary).
  const double first = run(), uniform = std::log(static_cast<double>(model.vocab_size));
  if (!(std::abs(loss - uniform) < 0.1 * uniform))
    fail(Exit::kInternal, "train_step: {}: the first loss is {}, expected about {}", recipe, loss, uniform);
  for (int i = 0; i < kWarmupSteps; ++i) run();
  const double seconds = static_cast<double>(integer(flags, "seconds"));
  std::vector<double> times;
  for (const Clock::time_point start = Clock::now();
       times.size() < 3 || std::chrono::duration<double>(Clock::now() - start).count() < seconds;)
    times.push_back(run());
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {{"impl", "mantissa"},
          {"dtype", recipe},
          {"weights", precision.weights},
          {"scope", precision.scope},
          {"tokens_per_s", static_cast<double>(tokens) / median},
          {"spread", (times[times.size() * 3 / 4] - times[times.size() / 4]) / median},
          {"steps", times.size()},
          {"first_step_s", first},
          {"threads", engine.exec().threads()},
          {"isa", name_of(engine.exec().isa())},
          {"parameters", engine.params().count()},
          {"tokens_per_step", tokens}};
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) {
  using namespace mantissa;
  try {
    const Flags flags = parse(argc, argv);
    for (const std::string& recipe : split(flags.at("recipe"), ',')) {
      fmt::print("{}\n", measure(flags, recipe).dump());
      std::fflush(stdout);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
