#include "app/model_source.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/units.h"
#include "model/hf/export.h"
#include "train/memory_plan.h"

namespace mantissa {

void ModelSource::add_flags(CommandLine& command) {
  command.option("model", path, "a Hugging Face model folder, the folder of a finished run, or RUN@STEP: a checkpoint")
      .required();
  command.option("--dtype", dtype, "of weights and products; auto: fp32 where config.json says float32")
      .one_of({"auto", "fp32", "bf16"})
      .show_default();
  add_device_flags(command, device);
  command.option("--tokenizer", tokenizer, "bytes, or a folder or file with a tokenizer.json; default: the model's");
}

void add_device_flags(CommandLine& command, DeviceConfig& device) {
  command.option("--device", device.name, "auto (a GPU where there is one), cpu, cuda or cuda:N").show_default();
  command.flag("--deterministic", device.deterministic, "GPU: the same bits in every run");
}

ChosenDevice ModelSource::open_device() const { return choose_device(device, {}, "--device"); }

bool ModelSource::full_precision(const std::string& folder) const {
  if (dtype != "auto") return dtype == "fp32";
  const Json config = read_json(join_path(folder, "config.json"));
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.is_object() && config.contains(key)) return config[key] == "float32";
  return false;
}

Tokenizer ModelSource::open_tokenizer(const std::string& folder, const ModelConfig& model) const {
  std::string spec = tokenizer;
  if (spec.empty() && exists(join_path(folder, "tokenizer.json"))) spec = folder;
  if (spec.empty()) {
    if (model.vocab_size != 256) fail(Exit::kInput, "{}: has no tokenizer.json; --tokenizer names one", folder);
    spec = Tokenizer::kBytes;
  }
  Tokenizer opened = Tokenizer::open(spec);
  if (opened.vocab_size() > model.vocab_size)
    fail(Exit::kUsage, "{}: has ids up to {}, the model's vocabulary {}", opened.name(), opened.vocab_size() - 1,
         model.vocab_size);
  return opened;
}

void check_memory(int64_t bytes, const char* verb, Device* gpu) {
  const int64_t has = gpu ? target_of(*gpu, 0).bytes : machine().memory_bytes;
  if (gpu) bytes += kGpuContextBytes;
  if (static_cast<double>(bytes) > (gpu ? kPlannedGpuShare : kPlannedShare) * static_cast<double>(has))
    fail(Exit::kMemory, "{}: needs {}, the {} has {}; --dtype bf16 or a shorter context takes less", verb,
         bytes_text(static_cast<double>(bytes)), gpu ? "GPU" : "machine", bytes_text(static_cast<double>(has)));
}

}  // namespace mantissa
