#include "train/step_graphs.h"

namespace mantissa {

bool StepGraphs::run(Device& device, const StepVariant& variant, float z_weight, const std::function<void()>& work) {
  const auto [found, added] = graphs_.try_emplace(variant);
  if (added) {
    work();
    return true;
  }
  Captured& captured = found->second;
  const bool stale = !captured.graph || captured.z_weight != z_weight;
  if (stale) captured = {device.capture(work), z_weight};
  captured.graph->launch();
  return stale;
}

}  // namespace mantissa
