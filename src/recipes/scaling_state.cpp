#include "recipes/scaling_state.h"

#include <cstring>

namespace mantissa {
namespace {

void write_to(Device* device, void* to, const void* from, size_t bytes) {
  device ? device->copy_in(to, from, static_cast<int64_t>(bytes)) : static_cast<void>(std::memcpy(to, from, bytes));
}

void read_from(Device* device, void* to, const void* from, size_t bytes) {
  device ? device->copy_out(to, from, static_cast<int64_t>(bytes)) : static_cast<void>(std::memcpy(to, from, bytes));
}

}  // namespace

void ScalingState::add(const std::string& layer, const LinearRecipe& recipe) { layers_.push_back({layer, &recipe}); }

std::vector<DelayedSlot> ScalingState::collect(std::vector<Name>* names) const {
  std::vector<DelayedSlot> slots;
  for (const bool direction : {false, true})
    for (const Layer& layer : layers_)
      layer.recipe->visit_slots([&](const char* tensor, bool backward, const DelayedSlot& slot) {
        if (backward != direction) return;
        slots.push_back(slot);
        if (names) names->push_back({layer.name, tensor});
      });
  return slots;
}

void ScalingState::allocate(Arena& arena) {
  slots_.count = static_cast<int64_t>(collect().size());
  if (slots_.count == 0) return;
  const int64_t bytes = slots_.count * int64_t{sizeof(DelayedSlot)};
  slots_.slots = static_cast<DelayedSlot*>(arena.tensor("scaling state", DType::kU8, {bytes}).data);
  slots_.fault = static_cast<uint32_t*>(arena.tensor("scaling state", DType::kI32, {1}).data);
}

void ScalingState::fill_table(Device* device) {
  device_ = device;
  if (slots_.count == 0) return;
  names_.clear();
  const std::vector<DelayedSlot> slots = collect(&names_);
  forward_ = 0;
  for (const Layer& layer : layers_)
    layer.recipe->visit_slots([&](const char*, bool backward, const DelayedSlot&) { forward_ += !backward; });
  write_to(device, slots_.slots, slots.data(), slots.size() * sizeof slots[0]);
  forget_trouble();
}

void ScalingState::start() {
  constexpr float kOne = 1;
  for (const DelayedSlot& slot : collect()) write_to(device_, slot.scale, &kOne, sizeof kOne);
}

void ScalingState::end_forward(Exec& exec) { update_scales(exec, slots_, 0, forward_); }

void ScalingState::end_backward(Exec& exec) {
  update_scales(exec, slots_, forward_, slots_.count);
  publish_scales(exec, slots_);
}

std::string ScalingState::trouble() const {
  if (slots_.count == 0) return {};
  uint32_t fault = 0;
  read_from(device_, &fault, slots_.fault, sizeof fault);
  if (fault == 0) return {};
  const auto index = static_cast<size_t>(slots_.count - fault);
  DelayedSlot slot;
  read_from(device_, &slot, slots_.slots + index, sizeof slot);
  return fmt::format("{} {}: amax is {}, scale {} -> {}", names_[index].layer, names_[index].tensor, slot.fault.amax,
                     slot.fault.scale, slot.fault.next);
}

void ScalingState::forget_trouble() {
  if (slots_.count == 0) return;
  if (device_)
    device_->zero(slots_.fault, sizeof *slots_.fault);
  else
    *slots_.fault = 0;
}

}  // namespace mantissa
