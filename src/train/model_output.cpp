#include "train/model_output.h"

#include <filesystem>

#include "base/file.h"
#include "base/units.h"
#include "data/chat.h"
#include "data/tokenizer/tokenizer_writer.h"
#include "model/arch/arch.h"

namespace mantissa {
namespace {

// Room for what lies beside the tensors: headers, configs, a tokenizer.
constexpr uint64_t kBeside = uint64_t{64} << 20;

DType updated_dtype(WeightMode weights) {
  return weights == WeightMode::kF32 || weights == WeightMode::kF32Master ? DType::kF32 : DType::kBF16;
}

std::string size_text(uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// The folder, or the nearest one above it that is there.
std::string existing(const std::string& folder) {
  std::filesystem::path path = std::filesystem::absolute(folder);
  while (!exists(path.string()) && path.has_relative_path()) path = path.parent_path();
  return path.string();
}

void add_tokenizer(const Tokenizer& tokenizer, HfExport& options) {
  if (tokenizer.is_bytes()) {
    const tokenizer::WrittenTokenizer bytes = tokenizer::bytes_tokenizer_file();
    options.files = {{"tokenizer.json", tokenizer::tokenizer_json(bytes)},
                     {"tokenizer_config.json", tokenizer::tokenizer_config_json(bytes)}};
    return;
  }
  options.tokenizer_folder = tokenizer.folder();
  // A file of another name becomes tokenizer.json.
  if (!is_directory(tokenizer.name())) options.files = {{"tokenizer.json", read_text(tokenizer.name())}};
}

}  // namespace

HfExport export_options(const TrainConfig& config, const Dataset& data) {
  return export_options(config, data.tokenizer().get(), data.eos());
}

HfExport export_options(const TrainConfig& config, const Tokenizer* tokenizer, int32_t eos) {
  HfExport options;
  options.dtype = updated_dtype(config.precision.weight_mode());
  options.source_folder = config.init_folder();
  options.eos = eos;
  if (!config.data.eos_token.empty()) options.trained_eos = eos;
  if (tokenizer != nullptr) {
    options.bos = tokenizer->bos(), options.pad = tokenizer->pad();
    if (options.eos < 0) options.eos = tokenizer->eos();
    const std::string_view end = chat_end(chat_template_of(config.data));
    if (!end.empty() && tokenizer->find(end) >= 0) options.turn_ends = {tokenizer->find(end)};
    add_tokenizer(*tokenizer, options);
  } else {
    // Files of tokens that name no tokenizer: ids are those of the model that training began with.
    options.tokenizer_folder = config.init_folder();
  }
  return options;
}

ModelOutput::ModelOutput(const TrainConfig& config, const Dataset& data, const std::string& run_folder)
    : model_(config.model), saves_(config.train.save_weights) {
  if (!saves_) return;
  options_ = export_options(config, data);
  const uint64_t bytes = export_bytes(find_arch(model_.arch).params(model_), options_.dtype) + kBeside;
  const uint64_t free = free_bytes(existing(run_folder));
  if (free < bytes)
    fail(Exit::kStorage,
         "{}: the weights of the finished run take {}, {} are free; make room, give another run.dir, or leave them out "
         "with train.save_weights: false",
         join_path(run_folder, "model"), size_text(bytes), size_text(free));
}

std::string ModelOutput::write(const ParamStore& params, RunFolder& run) const {
  if (!saves_) {
    run.drop_model();
    return "";
  }
  write_hf_folder(run.new_model(), model_, params, options_);
  run.place_model();
  std::vector<ParamSpec> specs;
  for (int id = 0; id < params.size(); ++id) specs.push_back(params.spec(id));
  return fmt::format("{} · {} · {}", run.file("model"), options_.dtype == DType::kF32 ? "F32" : "BF16",
                     size_text(export_bytes(specs, options_.dtype)));
}

}  // namespace mantissa
