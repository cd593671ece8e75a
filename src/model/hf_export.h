// Writing Hugging Face model folders (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <string>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

struct HfExport {
  DType dtype = DType::kBF16;                // of the tensors: kF32 or kBF16
  uint64_t shard_bytes = uint64_t{5} << 30;  // a folder above this is sharded
  std::string tokenizer_folder;              // its tokenizer files are copied; "": none
  std::string source_folder;             // config.json there gives what training does not change (token ids); "": none
  int32_t bos = -1, eos = -1, pad = -1;  // where neither folder names them; -1: left out
};

// Writes config.json (old and new rope and dtype keys), generation_config.json, model.safetensors or its shards with
// index, and the tokenizer's files. A new folder appears whole or not at all; an existing one is refused
// (Exit::kUsage). Tied models have no lm_head.weight.
void write_hf_folder(const std::string& folder, const ModelConfig& model, const ParamStore& params,
                     const HfExport& options);

// The model folder that `path` means: itself where it has a config.json, else the `model` folder of a finished run.
// Exit::kInput says what was looked for.
std::string find_model_folder(const std::string& path);

}  // namespace mantissa
