// config.json and generation_config.json of an exported folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/hf/export.h"

namespace mantissa::hf {

struct ExportConfigs {
  std::string config, generation;  // JSON texts
};

// Exit::kInput for a token id of the folder's config.json or generation_config.json that is no number or lies outside
// the vocabulary.
void check_token_ids(const std::string& folder, int64_t vocab_size);

// Token ids come from the config.json or generation_config.json of the source folder, then of the tokenizer's, then of
// the options. What else the source's generation_config.json says is kept. Exit::kInput for an id that is no number or
// lies outside the vocabulary.
ExportConfigs export_configs(const ModelConfig& model, const HfExport& options);

}  // namespace mantissa::hf
