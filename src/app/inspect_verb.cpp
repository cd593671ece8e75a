// mantissa inspect PATH: what a model folder, a safetensors file or a run folder holds.
#include <nlohmann/json.hpp>

#include "app/flags.h"
#include "app/verbs.h"
#include "base/console.h"
#include "base/file.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "base/units.h"
#include "model/flops.h"
#include "model/hf_checkpoint.h"
#include "report/run_reader.h"
#include "report/table.h"

namespace mantissa {
namespace {

void inspect_tensors(const std::string& path) {
  const auto file = safetensors::Reader::open(path);
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, view] : file.tensors()) {
    fmt::print("  {:<60} {:<8} {}\n", name, view.dtype, shape_text(view.shape));
    elements += view.elements();
    bytes += static_cast<int64_t>(view.bytes.size());
  }
  for (const auto& [key, value] : file.metadata()) fmt::print("  metadata {}: {}\n", key, value);
  fmt::print("{}: {} tensors · {} elements · {} · structure checked\n", path, file.tensors().size(), grouped(elements),
             bytes_text(static_cast<double>(bytes)));
}

void inspect_model(const std::string& folder) {
  const ModelConfig m = read_hf_config(folder);
  fmt::print("{}: {} · {} layers · hidden {} · intermediate {} · {}/{} heads of {} · vocabulary {} · {} embeddings · {} parameters\n",
             folder, m.arch, m.num_hidden_layers, m.hidden_size, m.intermediate_size, m.num_attention_heads,
             m.num_key_value_heads, m.head_dim, m.vocab_size, m.tie_word_embeddings ? "tied" : "untied",
             grouped(count_parameters(m)));
  if (find_arch(m.arch).traits.rope)
    fmt::print("rope      theta {} · {}{}\n", m.rope_theta, m.rope_scaling.type,
               m.rope_scaling.type == "default" ? "" : fmt::format(" factor {}", m.rope_scaling.factor));
  const std::string weights = join_path(folder, "model.safetensors");
  if (!exists(weights)) {
    fmt::print("{}: not there\n", weights);
    return;
  }
  ParamStore params(find_arch(m.arch).params(m), {.weights = WeightMode::kF32, .training = false});
  Arena arena;
  arena.build([&](Arena& a) { params.allocate(a); });
  load_hf_weights(folder, m, params);
  inspect_tensors(weights);
  fmt::print("every tensor that the config names is there, with its shape, and no other\n");
}

void inspect_run(const std::string& folder) {
  const report::Run run = report::read_run(folder);
  fmt::print("{}\n", run.info.dump(2));
  fmt::print("{}: {} steps · {} evaluations · {} quantization measurements · {}\n", folder, run.metrics.steps.size(),
             run.metrics.evals.size(), run.metrics.quantization.size(), run.result.is_null() ? "not finished" : "finished");
  if (!run.result.is_null()) fmt::print("{}\n", run.result.dump(2));
}

}  // namespace

int inspect_verb(const std::vector<std::string>& args) {
  CLI::App app("What a model folder, a safetensors file, a run or a comparison folder holds.", "inspect");
  std::string path;
  app.add_option("path", path, "folder or file")->required();
  if (!parse_flags(app, args)) return 0;
  if (!exists(path)) fail(Exit::kInput, "{}: not there", path);
  if (!is_directory(path)) {
    inspect_tensors(path);
  } else if (exists(join_path(path, "compare.json"))) {
    fmt::print("{}", report::render_compare_table(report::read_compare(path), {}));
  } else if (exists(join_path(path, "run.json"))) {
    inspect_run(path);
  } else if (exists(join_path(path, "config.json"))) {
    inspect_model(path);
  } else {
    fail(Exit::kInput, "{}: no config.json (model), run.json (run) or compare.json (comparison) in it", path);
  }
  return 0;
}

}  // namespace mantissa
