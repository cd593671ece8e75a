// run.json: what runs (docs/run_folder.md).
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/parallel.h"
#include "base/utc.h"
#include "base/version.h"
#include "train/run_setup.h"

namespace mantissa {
namespace {

// How a layer's products run on the device.
Path path_of(const Linear& linear, const Device* device) {
  return find_recipe(linear.recipe().info().name).path(target_of(device)).path;
}

Json machine_json(const Exec& exec, const RunSetup& setup) {
  const Machine m = machine();
  const Device* device = setup.device;
  Json json = {{"cpu", m.cpu},           {"cores", m.cores},   {"threads", device ? max_threads() : exec.threads()},
               {"features", m.features}, {"system", m.system}, {"memory_bytes", m.memory_bytes}};
  if (device) {
    json["gpu"] = device_json(*device, setup.config.device.graphs);
    return json;
  }
  json["isa"] = name_of(exec.isa());
  json["gemm_gflops"] = {{"bf16", setup.rates.bf16_gflops}, {"f32", setup.rates.f32_gflops}};
  return json;
}

Json model_json(const RunSetup& setup, const ParamStore& params) {
  const ModelConfig& c = setup.config.model;
  return {{"arch", c.arch},
          {"init", setup.config.model_init},
          {"layers", c.num_hidden_layers},
          {"hidden", c.hidden_size},
          {"intermediate", c.intermediate_size},
          {"heads", c.num_attention_heads},
          {"kv_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"vocab", c.vocab_size},
          {"parameters", params.count()},
          {"tied", c.tie_word_embeddings}};
}

Json precision_json(const RunSetup& setup, const Decoder& decoder) {
  const PrecisionConfig& p = setup.config.precision;
  Json layers = Json::array();
  for (const Linear* linear : decoder.linears()) {
    const RecipeInfo i = linear->recipe().info();
    layers.push_back({{"name", linear->name()},
                      {"recipe", i.name},
                      {"path", name_of(path_of(*linear, setup.device))},
                      {"input", i.input},
                      {"weight", i.weight},
                      {"grad", i.grad}});
  }
  return {{"weights", p.weights},
          {"recipe", p.recipe},
          {"scope", p.scope},
          {"path", path_of(decoder, setup.device)},
          {"low_precision_share", low_precision_share(decoder)},
          {"note", rules_note(setup.config)},
          {"layers", std::move(layers)}};
}

Json data_json(const RunSetup& setup) {
  const DataReport& d = setup.data.report();
  Json files = Json::array();
  for (const SourceFile& f : d.files) files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}});
  return {{"name", d.name},
          {"version", d.version},
          {"sha256", d.files.empty() ? "" : d.files.front().sha256},
          {"files", std::move(files)},
          {"format", d.format},
          {"tokenizer", d.tokenizer},
          {"tokenizer_sha256", d.tokenizer_sha256},
          {"eos", setup.data.eos()},
          {"eos_origin", d.eos_origin},
          {"documents", d.train.documents},
          {"tokens", d.train.tokens},
          {"rows", d.train.rows},
          {"validation_rows", d.validation.rows},
          {"sequence_length", setup.config.data.sequence_length},
          {"segment_length", d.train.segment_length},
          {"padding", d.train.padding},
          {"labels", d.train.labels},
          {"unigram_entropy_nats", d.unigram_entropy}};
}

Json flops_json(const FlopsPerToken& flops) {
  return {{"mfu", flops.mfu},
          {"nanogpt_legacy_v1", flops.nanogpt_legacy_v1},
          {"combined_formula_v2", flops.combined_formula_v2},
          {"component_summation_v2025", flops.component_summation_v2025},
          {"hfu", flops.hfu},
          {"attention_to_ffn_ratio", flops.attention_to_ffn_ratio}};
}

Json memory_json(const MemoryPlan& plan) {
  Json rows = Json::array();
  for (const auto& [purpose, bytes] : plan.ledger.rows()) rows.push_back({{"purpose", purpose}, {"bytes", bytes}});
  return {{"rows", std::move(rows)},
          {"total_bytes", plan.ledger.total()},
          {"device_bytes", plan.device_bytes},
          {"checkpoint_copy_bytes", plan.copy_bytes()}};
}

}  // namespace

std::string path_of(const Decoder& decoder, const Device* device) {
  for (const Linear* linear : decoder.linears())
    if (path_of(*linear, device) != Path::kNative) return name_of(path_of(*linear, device));
  return name_of(Path::kNative);
}

double low_precision_share(const Decoder& decoder) {
  double low = 0, all = 0;
  for (const Linear* linear : decoder.linears()) {
    const double flops = static_cast<double>(linear->in_features()) * static_cast<double>(linear->out_features());
    all += flops;
    if (find_recipe(linear->recipe().info().name).quantizes()) low += flops;
  }
  return low / all;
}

std::string rules_note(const TrainConfig& config) {
  const PrecisionConfig& p = config.precision;
  const std::string note = p.rules_note(config.model.num_hidden_layers);
  const bool plain = find_recipe(p.recipe).bits >= 16;
  return note.empty() && plain ? p.mixed_note(config.model.num_hidden_layers) : note;
}

Json run_info(const RunSetup& setup, Engine& engine) {
  const TrainConfig& c = setup.config;
  return {
      {"version", kVersion},
      {"commit", commit()},
      {"started", utc_now()},
      {"name", c.run.name},
      {"seed", c.run.seed},
      {"machine", machine_json(engine.exec(), setup)},
      {"model", model_json(setup, engine.params())},
      {"precision", precision_json(setup, engine.decoder())},
      {"data", data_json(setup)},
      {"batch",
       {{"tokens", c.batch.tokens},
        {"micro_batch", setup.memory.micro_rows},
        {"accumulation", setup.memory.accumulation}}},
      {"steps", setup.steps},
      {"flops_per_token", flops_json(setup.flops)},
      {"peak", {{"flops", setup.rates.bf16_gflops * 1e9}, {"method", setup.rates.method}}},
      {"memory", memory_json(setup.memory)},
  };
}

void add_device_choices(Json& info, const Device& device) {
  info["gemm"] = device.gemm_choices();
  info["attention"] = device.attention_plans();
  info["slow_paths"] = device.slow_paths();
}

}  // namespace mantissa
