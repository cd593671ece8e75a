// Small models and micro-batches that the tests of the engine on a GPU share.
#pragma once

#include <map>
#include <memory>

#include "tests/gpu/on_device.h"
#include "train/engine.h"

namespace mantissa {

// Two layers of the architecture; a vocabulary of 1000 is not a multiple of 128. Llama's head is not tied.
ModelConfig small_model(const std::string& arch, int64_t vocab = 1000, int64_t head_dim = 64);

// A micro-batch of documents of the given lengths, with labels masked at their ends.
struct Rows {
  std::vector<int32_t> ids, labels, positions, segments{0};
  int64_t valid = 0;

  Rows(const std::vector<int>& lengths, uint32_t salt, int64_t vocab = 1000);
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  MicroBatch view() const;
};

// Rows of 128 tokens in micro-batches of 256.
inline constexpr int64_t kTokens = 256, kLength = 128;
inline Rows packed_rows(uint32_t salt) { return Rows({40, 88, 1, 60, 67}, salt); }
inline Rows uniform_rows(uint32_t salt) { return Rows({128, 128}, salt); }

// A built engine with the weights of seed 7. `device` null: the CPU.
struct EngineCase {
  std::string arch = "qwen3", recipe = "bf16", weights = "fp32", state = "auto", recompute = "none";
  bool graphs = true;
  int64_t head_dim = 64, tokens = kTokens, max_segments = 8;
  std::string scope = "linear";
};
std::unique_ptr<Engine> make_engine(const EngineCase& c, Device* device);

// The state of an engine, as `to`, on another device, goes on from: the same case but for the device.
void copy_state(Engine& to, Engine& from);

// Scales and amax histories of all layers, by name.
std::map<std::string, std::vector<float>> scaling_values(Engine& engine);

// Losses of each step, gradients of the last one, parameters after it.
struct Trace {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> grads, params;
};
// Forward and backward of step `step`: three micro-batches, packed, uniform, packed. Returns the mean loss of a token.
double accumulate(Engine& engine, uint32_t step);
// Steps of accumulate() and an update.
inline constexpr double kLearningRate = 3e-3;
Trace train(Engine& engine, uint32_t steps);

}  // namespace mantissa
