#include "train/step_graphs.h"

namespace mantissa {

bool StepGraphs::run(Device& device, const StepVariant& variant, const std::function<void()>& work) {
  const auto [found, added] = graphs_.try_emplace(variant);
  if (added) {
    work();
    return true;
  }
  std::unique_ptr<DeviceGraph>& graph = found->second;
  const bool captures = !graph;
  if (captures) graph = device.capture(work);
  graph->launch();
  return captures;
}

}  // namespace mantissa
