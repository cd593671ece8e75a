// Writing Hugging Face model folders (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

struct HfExport {
  DType dtype = DType::kBF16;            // of the tensors: kF32 or kBF16
  uint64_t shard_bytes = 5'000'000'000;  // data of a file at most; more makes shards
  std::string tokenizer_folder;          // its tokenizer files are copied; "": none
  std::string source_folder;             // config.json there gives what training does not change (token ids); "": none
  int32_t bos = -1, eos = -1, pad = -1;  // where neither folder names them; -1: null
  int32_t trained_eos = -1;              // takes the place of every folder's eos_token_id; -1: does not
  std::vector<int32_t> turn_ends;        // end a generation too: join eos_token_id of generation_config.json
  // Name and content of further files, in place of those of tokenizer_folder (a byte tokenizer's tokenizer.json).
  std::vector<std::pair<std::string, std::string>> files;
};

// Bytes of the tensors that write_hf_folder would write.
uint64_t export_bytes(const std::vector<ParamSpec>& specs, DType dtype);

// Writes config.json (old and new rope and dtype keys), generation_config.json, model.safetensors or its shards with
// index, and the tokenizer's files. A new folder appears whole or not at all; an existing one is refused
// (Exit::kUsage). Tied models have no lm_head.weight. Exit::kStorage where it cannot be written, Exit::kInput for a
// token id outside the vocabulary.
void write_hf_folder(const std::string& folder, const ModelConfig& model, const ParamStore& params,
                     const HfExport& options);

// The model folder that `path` means: itself where it has a config.json, else the `model` folder of a finished run.
// Exit::kInput says what was looked for; also for a run that did not end and holds the model of one before.
std::string find_model_folder(const std::string& path);

}  // namespace mantissa
