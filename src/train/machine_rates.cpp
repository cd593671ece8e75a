#include "train/machine_rates.h"

#include "device/device_config.h"
#include "ops/gemm.h"

namespace mantissa {

MachineRates measure_rates(Device* device) {
  if (device) {
    const GpuPeak peak = gpu_peak(*device);
    return {.bf16_gflops = peak.gflops, .method = peak.method};
  }
  Exec exec;
  constexpr int64_t kSize = 1536;  // M = N = K: large enough for the steady rate, small enough to start at once
  return {.bf16_gflops = measure_gemm_rate(exec, DType::kBF16, kSize, kSize, kSize, 0.4),
          .f32_gflops = measure_gemm_rate(exec, DType::kF32, kSize, kSize, kSize, 0.4)};
}

}  // namespace mantissa
