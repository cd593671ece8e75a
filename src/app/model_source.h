// The model and tokenizer that sample and eval name on their command lines.
#pragma once

#include <cstdint>
#include <string>

#include "app/flags.h"
#include "data/tokenizer/tokenizer.h"
#include "device/device_config.h"
#include "model/hf/checkpoint.h"
#include "train/checkpoint_model.h"

namespace mantissa {

struct ModelSource {
  std::string path;            // MODEL: a Hugging Face folder, a finished run or RUN@STEP
  std::string dtype = "auto";  // of weights and products: fp32, bf16; auto: fp32 where config.json says float32
  DeviceConfig device;
  std::string tokenizer;  // "": the folder's tokenizer.json; without one bytes where the vocabulary is 256

  void add_flags(CommandLine& command);

  // After parsing. Each throws Exit::kInput for what is not there or not readable.
  ModelFolder open() const { return ModelFolder(path); }
  bool full_precision(const std::string& folder) const;  // computes in FP32
  // As --device says; Exit::kUnavailable.
  ChosenDevice open_device() const;
  // Exit::kUsage when its ids do not fit the model's vocabulary.
  Tokenizer open_tokenizer(const std::string& folder, const ModelConfig& model) const;
};

// --device and --deterministic.
void add_device_flags(CommandLine& command, DeviceConfig& device);

// Throws Exit::kMemory when `bytes` exceed what a run may take of the GPU, or of this machine where that is null;
// `verb` begins the message.
void check_memory(int64_t bytes, const char* verb, Device* gpu);

}  // namespace mantissa
