#include "tensor/cuda/nvml.h"

#include <dlfcn.h>

namespace mantissa::cuda {
namespace {

// The part of NVML's ABI that is used here (nvml.h, API version 2).
struct Memory {
  unsigned long long total, free, used;
};
using Handle = void*;
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;
struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kReasons[] = {{0x4, "power cap"},         {0x20, "thermal (software)"}, {0x40, "thermal (hardware)"},
                               {0x80, "power brake"},      {0x8, "hardware slowdown"},   {0x10, "sync boost"},
                               {0x2, "application clocks"}};

struct Nvml {
  int (*init)() = nullptr;
  int (*by_bus)(const char*, Handle*) = nullptr;
  int (*memory)(Handle, Memory*) = nullptr;
  int (*clock)(Handle, int, unsigned*) = nullptr;
  int (*temperature)(Handle, int, unsigned*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  int (*limit)(Handle, unsigned*) = nullptr;
  int (*reasons)(Handle, unsigned long long*) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  std::string absence;

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      absence = "libnvidia-ml.so.1 does not load";
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function) absence = std::string("libnvidia-ml.so.1 has no ") + name;
    };
    find(init, "nvmlInit_v2");
    find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(clock, "nvmlDeviceGetClockInfo");
    find(temperature, "nvmlDeviceGetTemperature");
    find(power, "nvmlDeviceGetPowerUsage");
    find(limit, "nvmlDeviceGetEnforcedPowerLimit");
    find(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(driver, "nvmlSystemGetDriverVersion");
    if (absence.empty() && init() != 0) absence = "NVML does not start";
  }
};

const Nvml& nvml() {
  static const Nvml library;
  return library;
}

Handle find_device(const std::string& bus) {
  Handle device = nullptr;
  return nvml().absence.empty() && nvml().by_bus(bus.c_str(), &device) == 0 ? device : nullptr;
}

}  // namespace

DeviceState read_state(const std::string& bus) {
  DeviceState state;
  const Nvml& n = nvml();
  Handle device = find_device(bus);
  if (!device) {
    state.absence = n.absence.empty() ? "NVML does not know " + bus : n.absence;
    return state;
  }
  unsigned value = 0;
  if (n.clock(device, kClockSm, &value) == 0) state.sm_clock_mhz = static_cast<int>(value);
  if (n.clock(device, kClockMemory, &value) == 0) state.memory_clock_mhz = static_cast<int>(value);
  if (n.temperature(device, kTemperatureGpu, &value) == 0) state.temperature_c = static_cast<int>(value);
  if (n.power(device, &value) == 0) state.power_w = value / 1000.0;
  if (n.limit(device, &value) == 0) state.power_limit_w = value / 1000.0;
  unsigned long long bits = 0;
  if (n.reasons(device, &bits) == 0)
    for (const Reason& reason : kReasons)
      if (bits & reason.bit) state.throttle += (state.throttle.empty() ? "" : ", ") + std::string(reason.name);
  return state;
}

int64_t read_free_bytes(const std::string& bus) {
  Handle device = find_device(bus);
  Memory memory{};
  return device && nvml().memory(device, &memory) == 0 ? static_cast<int64_t>(memory.free) : -1;
}

std::string read_driver_version() {
  char text[96] = "";
  return nvml().absence.empty() && nvml().driver(text, sizeof text) == 0 ? text : "";
}

}  // namespace mantissa::cuda
