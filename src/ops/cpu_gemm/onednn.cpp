#include "ops/cpu_gemm/onednn.h"

#include "base/module.h"

namespace mantissa {
namespace {

OnednnModule load() {
  OnednnModule module;
  module.gemm = reinterpret_cast<OnednnGemm>(module_function(kOnednnFile, kOnednnSymbol, module.absence));
  return module;
}

}  // namespace

const OnednnModule& onednn_module() {
  static const OnednnModule module = load();
  return module;
}

}  // namespace mantissa
