#include "model/hf_checkpoint.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "model/arch/arch.h"

namespace mantissa {
namespace {

float from_half(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

std::vector<float> to_floats(const safetensors::View& view, const std::string& name) {
  const auto n = static_cast<size_t>(view.elements());
  std::vector<float> out(n);
  if (view.dtype == "F32") {
    std::memcpy(out.data(), view.bytes.data(), n * 4);
    return out;
  }
  if (view.dtype != "BF16" && view.dtype != "F16")
    fail(Exit::kInput, "{}: dtype {}, expected F32, F16 or BF16", name, view.dtype);
  const bool brain = view.dtype == "BF16";
  for (size_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, view.bytes.data() + 2 * i, 2);
    out[i] = brain ? to_float(bf16{bits}) : from_half(bits);
  }
  return out;
}

std::vector<int64_t> part_shape(const ParamSpec& spec, const HfPart& part) {
  if (spec.shape.rank() == 1) return {part.rows};
  if (part.transposed) return {spec.shape[1], part.rows};
  return {part.rows, spec.shape[1]};
}

// The file's name for a Hugging Face tensor: GPT-2 checkpoints come with and without "transformer.".
const safetensors::View* find_tensor(const safetensors::Reader& file, const std::string& name, std::string& found) {
  static constexpr std::string_view kPrefix = "transformer.";
  found = name;
  const safetensors::View* view = file.find(name);
  if (!view && name.starts_with(kPrefix)) {
    found = name.substr(kPrefix.size());
    view = file.find(found);
  }
  return view;
}

}  // namespace

ModelConfig read_hf_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  const Json config = read_json(path);
  return in_context(path, [&] {
    if (!config.contains("model_type") || !config["model_type"].is_string()) fail(Exit::kInput, "model_type: missing");
    const std::string type = config["model_type"];
    for (const ArchEntry& entry : arch_table())
      if (type == entry.name) {
        ModelConfig model = entry.from_hf(config);
        model.resolve();
        return model;
      }
    fail(Exit::kInput, "model_type {}: not supported; gpt2, llama, qwen2 and qwen3 are", type);
  });
}

void load_hf_weights(const std::string& folder, const ModelConfig& model, ParamStore& params) {
  if (exists(join_path(folder, "model.safetensors.index.json")) && !exists(join_path(folder, "model.safetensors")))
    fail(Exit::kInput, "{}: sharded checkpoints are not read by this version; one model.safetensors is", folder);
  const auto file = safetensors::Reader::open(join_path(folder, "model.safetensors"));
  in_context(file.name(), [&] {
    std::set<std::string> used;
    for (int id = 0; id < params.size(); ++id) {
      const ParamSpec& spec = params.spec(id);
      std::vector<float> values(static_cast<size_t>(spec.shape.count()));
      const int64_t cols = spec.shape.rank() == 1 ? 1 : spec.shape[1];
      for (const HfPart& part : spec.hf) {
        std::string name;
        const safetensors::View* view = find_tensor(file, part.name, name);
        if (!view) fail(Exit::kInput, "{}: missing, expected {}", part.name, shape_text(part_shape(spec, part)));
        if (view->shape != part_shape(spec, part))
          fail(Exit::kInput, "{}: found {}, expected {}", name, shape_text(view->shape),
               shape_text(part_shape(spec, part)));
        used.insert(name);
        const std::vector<float> read = to_floats(*view, name);
        float* out = values.data() + part.row * cols;
        if (!part.transposed) {
          std::memcpy(out, read.data(), read.size() * sizeof(float));
        } else {
          for (int64_t r = 0; r < part.rows; ++r)
            for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = read[static_cast<size_t>(c * part.rows + r)];
        }
      }
      params.set(id, values.data());
    }
    for (const auto& [name, view] : file.tensors()) {
      if (used.contains(name)) continue;
      if (name == "lm_head.weight" && model.tie_word_embeddings) {
        std::vector<float> head = to_floats(view, name), embedding;
        embedding = params.values(params.find(param_names::kEmbedding));
        if (head != embedding)
          fail(Exit::kInput,
               "lm_head.weight: differs from the embedding although config.json ties them; set "
               "tie_word_embeddings to false");
        continue;
      }
      fail(Exit::kInput, "{}: not part of a {} model", name, model.arch);
    }
  });
}

void for_each_hf_part(
    const ParamSpec& spec, const std::vector<float>& values,
    const std::function<void(const std::string&, const std::vector<int64_t>&, const std::vector<float>&)>& visit) {
  const int64_t cols = spec.shape.rank() == 1 ? 1 : spec.shape[1];
  for (const HfPart& part : spec.hf) {
    std::vector<float> out(static_cast<size_t>(part.rows * cols));
    const float* in = values.data() + part.row * cols;
    for (int64_t r = 0; r < part.rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        out[static_cast<size_t>(part.transposed ? c * part.rows + r : r * cols + c)] = in[r * cols + c];
    visit(part.name, part_shape(spec, part), out);
  }
}

}  // namespace mantissa
