#include "tensor/device.h"

#include "base/error.h"
#include "base/module.h"

namespace mantissa {
namespace {

const CudaModule* load(std::string& absence) {
  using Entry = const CudaModule* (*)();
  static std::string why;
  static const auto entry = reinterpret_cast<Entry>(module_function(kCudaFile, kCudaSymbol, why));
  absence = why;
  return entry ? entry() : nullptr;
}

}  // namespace

int device_count(std::string& absence) {
  const CudaModule* module = load(absence);
  return module ? module->count(absence) : 0;
}

std::unique_ptr<Device> open_device(const DeviceOptions& options) {
  std::string absence;
  const int count = device_count(absence);
  if (count == 0) fail(Exit::kUnavailable, "no GPU: {}", absence);
  if (options.ordinal < 0 || options.ordinal >= count)
    fail(Exit::kUnavailable, "GPU {}: there are {}, counted from 0", options.ordinal, count);
  return std::unique_ptr<Device>(load(absence)->open(options));
}

}  // namespace mantissa
