// The driver's management library, loaded at run time: memory without a context, clocks, power.
#pragma once

#include <string>

#include "tensor/device.h"

namespace mantissa::cuda {

// Of the device with this PCI bus id ("0000:1b:00.0").
DeviceState read_state(const std::string& pci_bus_id);
// Free bytes of the device; -1 where NVML does not say. Makes no context.
int64_t read_free_bytes(const std::string& pci_bus_id);
// "580.82.07"; "" where NVML does not say.
std::string read_driver_version();

}  // namespace mantissa::cuda
