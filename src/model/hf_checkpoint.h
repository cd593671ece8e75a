// Hugging Face model folders: config.json and safetensors, strict both ways.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

// Dimensions from FOLDER/config.json. Exit::kInput names a key that is missing or not supported.
ModelConfig read_hf_config(const std::string& folder);

// Reads FOLDER/model.safetensors (F32, F16 or BF16) into the store. A missing, extra or mis-shaped tensor is refused by
// name (Exit::kInput). A tied model's lm_head.weight is accepted where it equals the embedding.
void load_hf_weights(const std::string& folder, const ModelConfig& model, ParamStore& params);

// Calls visit(hf_name, shape, values) for every Hugging Face tensor of parameter `id`, cut from `values` in its own
// layout.
void for_each_hf_part(
    const ParamSpec& spec, const std::vector<float>& values,
    const std::function<void(const std::string&, const std::vector<int64_t>&, const std::vector<float>&)>& visit);

}  // namespace mantissa
