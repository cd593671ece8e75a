#include "model/hf/match.h"

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/hf/values.h"

namespace mantissa::hf {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kPrefixes[] = {"transformer.", "model."};

// The folder's name for a tensor of a whole model: a base model is saved without the prefix.
const safetensors::View* find_tensor(const Tensors& tensors, const std::string& name, std::string& found) {
  found = name;
  const safetensors::View* view = tensors.find(name);
  for (const std::string_view prefix : kPrefixes)
    if (!view && name.starts_with(prefix)) {
      found = name.substr(prefix.size());
      view = tensors.find(found);
    }
  return view;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Buffers that older versions of transformers saved and that hold no weights.
bool is_old_buffer(std::string_view name, const std::string& arch) {
  const auto strip = [&name](std::string_view prefix) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  };
  if (arch == "gpt2") {
    // h.N.attn.bias, h.N.attn.masked_bias: the causal mask
    strip("transformer.");
    if (!name.starts_with("h.")) return false;
    name.remove_prefix(2);
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || !all_digits(name.substr(0, dot))) return false;
    name.remove_prefix(dot + 1);
    return name == "attn.bias" || name == "attn.masked_bias";
  }
  // layers.N.self_attn.rotary_emb.inv_freq, rotary_emb.inv_freq
  strip("model.");
  if (name == "rotary_emb.inv_freq") return true;
  if (!name.starts_with("layers.")) return false;
  name.remove_prefix(7);
  const size_t dot = name.find('.');
  return dot != std::string_view::npos && all_digits(name.substr(0, dot)) &&
         name.substr(dot + 1) == "self_attn.rotary_emb.inv_freq";
}

}  // namespace

std::vector<int64_t> part_shape(const ParamSpec& spec, const HfPart& part) {
  if (spec.shape.rank() == 1) return {part.rows};
  if (part.transposed) return {spec.shape[1], part.rows};
  return {part.rows, spec.shape[1]};
}

std::vector<Match> match_tensors(const Tensors& tensors, const ModelConfig& model,
                                 const std::vector<ParamSpec>& specs) {
  return in_context(tensors.name(), [&] {
    std::vector<Match> matches;
    std::set<std::string> used;
    for (size_t id = 0; id < specs.size(); ++id) {
      const ParamSpec& spec = specs[id];
      for (const HfPart& part : spec.hf) {
        Match m{.param = static_cast<int>(id), .spec = &spec, .part = &part};
        m.view = find_tensor(tensors, part.name, m.name);
        if (!m.view && model.tie_word_embeddings && spec.name == param_names::kEmbedding)
          m.view = find_tensor(tensors, std::string(kHead), m.name);
        const std::vector<int64_t> expected = part_shape(spec, part);
        if (!m.view) fail(Exit::kInput, "{}: missing, expected {}", part.name, shape_text(expected));
        if (m.view->shape != expected)
          fail(Exit::kInput, "{}: found {}, expected {}", m.name, shape_text(m.view->shape), shape_text(expected));
        if (!is_float(*m.view)) fail(Exit::kInput, "{}: dtype {}, expected F32, F16 or BF16", m.name, m.view->dtype);
        used.insert(m.name);
        matches.push_back(std::move(m));
      }
    }
    for (const auto& [name, view] : tensors.all()) {
      if (used.contains(name) || is_old_buffer(name, model.arch)) continue;
      if (name == kHead && model.tie_word_embeddings) {
        const Shape& embedding = specs.front().shape;
        if (view->shape != std::vector<int64_t>{embedding[0], embedding[1]})
          fail(Exit::kInput, "{}: found {}, expected {} (tied to the embedding)", name, shape_text(view->shape),
               embedding);
        if (!is_float(*view)) fail(Exit::kInput, "{}: dtype {}, expected F32, F16 or BF16", name, view->dtype);
        continue;
      }
      fail(Exit::kInput, "{}: not part of a {} model of these sizes", printable(name), model.arch);
    }
    return matches;
  });
}

bool head_differs(const Tensors& tensors, const std::vector<ParamSpec>& specs) {
  std::string name;
  const safetensors::View* head = tensors.find(std::string(kHead));
  for (const ParamSpec& spec : specs) {
    if (spec.name != param_names::kEmbedding || !head) continue;
    const safetensors::View* embedding = find_tensor(tensors, spec.hf.front().name, name);
    return embedding && !same_values(*head, *embedding);
  }
  return false;
}

}  // namespace mantissa::hf
