// Which tensor of a folder fills which rows of which parameter.
#pragma once

#include <string>
#include <vector>

#include "model/hf/tensors.h"
#include "model/model_config.h"
#include "model/param.h"

namespace mantissa::hf {

// One tensor of the folder and the rows of a parameter that it holds.
struct Match {
  int param = 0;  // index in the specs
  const ParamSpec* spec = nullptr;
  const HfPart* part = nullptr;
  const safetensors::View* view = nullptr;
  std::string name;  // as the folder spells it
};

// Every part of every parameter, strictly: a missing, extra or mis-shaped tensor and a dtype other than F32, F16 and
// BF16 are Exit::kInput with name, found and expected. As in transformers, names stand with or without the base model's
// prefix ("transformer.", "model."), buffers of old versions (GPT-2's masks, rotary inv_freq) are passed over, a tied
// model may hold lm_head.weight too, or alone.
std::vector<Match> match_tensors(const Tensors& tensors, const ModelConfig& model, const std::vector<ParamSpec>& specs);

// Shape of a part in the folder: [out, in], transposed [in, out], or [n].
std::vector<int64_t> part_shape(const ParamSpec& spec, const HfPart& part);

// lm_head.weight of a model that ties it to the embedding holds other values than the embedding.
bool head_differs(const Tensors& tensors, const std::vector<ParamSpec>& specs);

}  // namespace mantissa::hf
