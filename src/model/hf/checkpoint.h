// Reading Hugging Face model folders: config.json and safetensors, strict both ways (docs/checkpoints.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/param.h"

namespace mantissa {

// Dimensions from FOLDER/config.json; where weights lie beside it, their names and shapes are checked against it.
// Exit::kInput names a key or a tensor that is missing, malformed or not supported. A model that config.json ties but
// whose lm_head.weight differs from the embedding comes out untied, as in transformers 5: `notice` says so, on stderr
// where it is null.
ModelConfig read_hf_config(const std::string& folder, std::string* notice = nullptr);

// "resid_pdrop 0.1, attn_pdrop 0.1": what config.json asks for, or what transformers takes where it says nothing; ""
// for no dropout. Training here has none.
std::string hf_dropout(const std::string& folder);

// Reads FOLDER/model.safetensors or its shards (F32, F16 or BF16) into the store, tensor by tensor from the mapped
// files. A missing, extra or mis-shaped tensor is refused by name (Exit::kInput), before anything is written. A tied
// model may hold lm_head.weight where it equals the embedding. `round_to` kBF16 rounds the values to BF16 on the way.
// Returns the bytes of the tensors it has read.
int64_t load_hf_weights(const std::string& folder, const ModelConfig& model, ParamStore& params,
                        DType round_to = DType::kF32);

// The name of the first tensor of the folder that differs in a bit from the updated parameters of the store after
// `round_to`; "" when all agree.
std::string first_different_tensor(const std::string& folder, const ModelConfig& model, const ParamStore& params,
                                   DType round_to = DType::kF32);

// Calls visit(hf_name, shape, values) for every Hugging Face tensor of parameter `id`, cut from `values` in its own
// layout.
void for_each_hf_part(
    const ParamSpec& spec, const std::vector<float>& values,
    const std::function<void(const std::string&, const std::vector<int64_t>&, const std::vector<float>&)>& visit);

}  // namespace mantissa
