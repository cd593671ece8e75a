// The parameters' memory as lists: what a resume needs, and the gradients that become complete together.
#include <string_view>

#include "model/param.h"

namespace mantissa {
namespace {

// "layers.3" of "layers.3.mlp.up.weight", "embedding" of "embedding.weight".
std::string_view group_of(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  return name.substr(0, name.find('.', name.starts_with(kLayers) ? kLayers.size() : 0));
}

}  // namespace

std::vector<ParamGroup> ParamStore::groups() const {
  std::vector<ParamGroup> groups;
  for (int id = 0; id < size(); ++id) {
    const std::string_view name = group_of(spec(id).name);
    if (groups.empty() || groups.back().name != name) groups.push_back({std::string(name), id, 0});
    ++groups.back().count;
  }
  return groups;
}

Tensor ParamStore::grad_bucket(const ParamGroup& group) const {
  const Tensor first = padded_grad(group.first), last = padded_grad(group.first + group.count - 1);
  const auto* end = static_cast<const std::byte*>(last.data) + last.bytes();
  const int64_t bytes = end - static_cast<const std::byte*>(first.data);
  return {first.data, options_.grads, {bytes / bytes_of(options_.grads, 1)}};
}

void ParamStore::visit_state(const StateVisitor& f) const {
  const auto visit = [&](const char* purpose, const std::vector<Tensor>& tensors) {
    for (size_t id = 0; id < tensors.size(); ++id)
      f({fmt::format("{}/{}", purpose, specs_[id].name), tensors[id], options_.device});
  };
  visit("weights", weight_);
  visit("masters", master_);
  visit("m", m_);
  visit("v", v_);
  visit("m_scale", m_scale_);
  visit("v_scale", v_scale_);
}

}  // namespace mantissa
