// config.json of a model folder.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/display.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/hf/checkpoint.h"
#include "model/hf/folder.h"
#include "model/hf/match.h"

namespace mantissa {
namespace {

// A config.json has a few kilobytes.
constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;

template <class T>
void check_range(const char* key, T value, T min, T max) {
  if (!(value >= min && value <= max)) fail(Exit::kInput, "{}: {}, expected {} to {}", key, value, min, max);
}

// The ranges of the config's section `model`.
void check_ranges(const ModelConfig& m) {
  check_range<int64_t>("vocab_size", m.vocab_size, 2, 1 << 24);
  check_range<int64_t>("hidden_size", m.hidden_size, 1, 1 << 20);
  check_range<int64_t>("intermediate_size", m.intermediate_size, 1, 1 << 22);
  check_range<int64_t>("num_hidden_layers", m.num_hidden_layers, 1, 4096);
  check_range<int64_t>("num_attention_heads", m.num_attention_heads, 1, 4096);
  check_range<int64_t>("num_key_value_heads", m.num_key_value_heads, 1, 4096);
  check_range<int64_t>("head_dim", m.head_dim, 0, 4096);
  check_range<int64_t>("max_position_embeddings", m.max_position_embeddings, 1, 1 << 24);
  check_range("norm epsilon", m.norm_eps, 0.0, 1.0);
  check_range("rope_theta", m.rope_theta, 1.0, 1e30);
  check_range("initializer_range", m.initializer_range, 0.0, 10.0);
  check_range("rope factor", m.rope_scaling.factor, 1.0, 1e6);
  check_range("low_freq_factor", m.rope_scaling.low_freq_factor, 1e-6, 1e6);
  check_range("high_freq_factor", m.rope_scaling.high_freq_factor, m.rope_scaling.low_freq_factor, 1e6);
  check_range<int64_t>("original_max_position_embeddings", m.rope_scaling.original_max_position_embeddings, 1, 1 << 24);
}

ModelConfig read_config(const std::string& path) {
  const Json config = read_json(path, kMaxConfigBytes);
  return in_context(path, [&] {
    if (!config.is_object()) fail(Exit::kInput, "is {}, expected an object", config.type_name());
    if (config.contains("peft_type"))
      fail(Exit::kInput, "an adapter's config; merge the adapter into its base and take that folder");
    if (!config.contains("model_type") || !config["model_type"].is_string()) fail(Exit::kInput, "model_type: missing");
    if (config.contains("quantization_config") && !config["quantization_config"].is_null())
      fail(Exit::kInput,
           "quantization_config: the weights are stored quantized; take the folder that they were made "
           "from");
    const std::string type = config["model_type"];
    for (const ArchEntry& entry : arch_table())
      if (type == entry.name) {
        ModelConfig model = entry.from_hf(config);
        check_ranges(model);
        try {
          model.resolve();
        } catch (const Error& error) {
          throw Error(Exit::kInput, error.what());  // here the dimensions come from a file
        }
        return model;
      }
    fail(Exit::kInput, "model_type {}: not supported; supported: {}", printable(type), join(arch_names(), ", "));
  });
}

}  // namespace

ModelConfig read_hf_config(const std::string& folder, std::string* notice) {
  const std::string path = join_path(folder, hf::kConfig);
  if (!exists(path) && is_directory(folder) && !hf::has_weights(folder)) hf::refuse_without_weights(folder);
  ModelConfig model = read_config(path);
  if (!hf::has_weights(folder)) return model;
  const auto tensors = hf::Tensors::open(folder);
  const std::vector<ParamSpec> specs = find_arch(model.arch).params(model);
  hf::match_tensors(tensors, model, specs);
  if (model.tie_word_embeddings && hf::head_differs(tensors, specs)) {
    model.tie_word_embeddings = false;
    const std::string text = fmt::format(
        "{}: config.json ties lm_head.weight to the embedding, but the two differ; they are left untied", folder);
    if (notice)
      *notice = text;
    else
      fmt::print(stderr, "notice: {}\n", displayed(text));
  }
  return model;
}

std::string hf_dropout(const std::string& folder) {
  // GPT-2 alone; Llama and Qwen with dropout are refused. GPT2Config of transformers: 0.1 each.
  constexpr double kGpt2Default = 0.1;
  const Json config = read_json(join_path(folder, hf::kConfig), kMaxConfigBytes);
  const auto type = config.find("model_type");  // end() of what is no object
  if (type == config.end() || !type->is_string() || type->get_ref<const std::string&>() != "gpt2") return "";
  std::vector<std::string> parts;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    const auto at = config.find(key);
    const bool given = at != config.end() && !at->is_null();
    if (given && !at->is_number())
      fail(Exit::kInput, "{}: {}: found {}, expected a number", join_path(folder, hf::kConfig), key,
           printable(at->dump(-1, ' ', true), 40));
    const double share = given ? at->get<double>() : kGpt2Default;
    if (share != 0) parts.push_back(fmt::format("{} {}{}", key, share, given ? "" : " (its default)"));
  }
  return join(parts, ", ");
}

}  // namespace mantissa
