// The micro-step on a GPU as CUDA graphs, one for each way in which its launches differ.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "tensor/device.h"

namespace mantissa {

struct StepVariant {
  bool first = false;   // of its step: products overwrite the matrices' gradients, later ones add
  int64_t uniform = 0;  // Segments::uniform

  auto operator<=>(const StepVariant&) const = default;
};

class StepGraphs {
 public:
  // `work` of this variant was run op by op: libraries have made their plans.
  void add(const StepVariant& variant) { graphs_.try_emplace(variant); }

  // Enqueues `work` as one graph, op by op where the variant is not known yet. A graph holds addresses and sizes; what
  // differs from step to step it reads there. Returns whether the host code of `work` ran.
  bool run(Device& device, const StepVariant& variant, const std::function<void()>& work);

 private:
  std::map<StepVariant, std::unique_ptr<DeviceGraph>> graphs_;
};

}  // namespace mantissa
