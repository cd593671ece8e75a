// Model folders for tests: copies of the goldens whose tensors and config.json a test changes.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/hf/checkpoint.h"
#include "tests/base/support.h"

namespace mantissa::testing {

inline std::string golden(const std::string& model) {
  return std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + model;
}

struct TensorValue {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using TensorMap = std::map<std::string, TensorValue>;

inline TensorMap read_tensors(const std::string& path) {
  const auto file = safetensors::Reader::open(path);
  TensorMap out;
  for (const auto& [name, view] : file.tensors())
    out[name] = {view.dtype, view.shape, {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()}};
  return out;
}

inline void write_tensors(const std::string& path, const TensorMap& tensors) {
  std::vector<safetensors::Entry> entries;
  for (const auto& [name, t] : tensors) entries.push_back({name, t.dtype, t.shape, std::as_bytes(std::span(t.bytes))});
  safetensors::write(path, entries);
}

// Tensors in turn over `shards` files, and their index.
inline void write_sharded(const std::string& folder, const TensorMap& tensors, size_t shards) {
  std::vector<TensorMap> parts(shards);
  Json map = Json::object();
  size_t i = 0;
  for (const auto& [name, t] : tensors) {
    parts[i % shards][name] = t;
    map[name] = "part-" + std::to_string(i++ % shards) + ".safetensors";
  }
  for (size_t s = 0; s < shards; ++s) write_tensors(folder + "/part-" + std::to_string(s) + ".safetensors", parts[s]);
  write_atomic(folder + "/model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

// A golden's config.json and tensors in a folder of their own.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& model)
      : config(read_json(golden(model) + "/config.json")),
        tensors(read_tensors(golden(model) + "/model.safetensors")) {}

  Json config;
  TensorMap tensors;

  const std::string& path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  void write_config() const { write_atomic(folder_ / "config.json", config.dump(2)); }
  void write() const {
    write_config();
    write_tensors(folder_ / "model.safetensors", tensors);
  }
  void write_shards(size_t shards) const {
    write_config();
    write_sharded(folder_.path(), tensors, shards);
  }

 private:
  TempFolder folder_;
};

// The parameters of a folder in memory.
struct Loaded {
  explicit Loaded(const std::string& folder, WeightMode mode = WeightMode::kF32, DType round_to = DType::kF32)
      : model(read_hf_config(folder, &notice)),
        params(find_arch(model.arch).params(model), {.weights = mode, .training = false}) {
    arena.build([this](Arena& a) { params.allocate(a); });
    load_hf_weights(folder, model, params, round_to);
  }

  std::string notice;
  ModelConfig model;
  ParamStore params;
  Arena arena;

  // Every parameter's values, in order.
  std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> out;
    for (int id = 0; id < params.size(); ++id) out.push_back(params.values(id));
    return out;
  }
};

}  // namespace mantissa::testing
