// What MFU is held against.
#pragma once

#include <string>

#include "tensor/device.h"

namespace mantissa {

// Of a CPU the GEMM rates measured once at start-up, of a GPU its dense BF16 peak alone.
struct MachineRates {
  double bf16_gflops = 0, f32_gflops = 0;
  std::string method = "BF16 GEMM rate measured at start-up";
};
// Of the CPU where `device` is null.
MachineRates measure_rates(Device* device = nullptr);

}  // namespace mantissa
