// mantissa bench ops | gemm | step: verified, then timed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/flags.h"
#include "device/device_config.h"
#include "tensor/device.h"

namespace mantissa {

int bench_ops(const std::vector<std::string>& args);
int bench_gemm(const std::vector<std::string>& args);
int bench_step(const std::vector<std::string>& args);

// What every benchmark takes and says.
struct BenchOptions {
  DeviceConfig device;
  double seconds = 0;
  std::string json;  // file for the figures, "": none
};
// --device, --deterministic, --seconds, --json.
void add_bench_flags(CommandLine& command, BenchOptions& options);
// CLI11's form of a check for a number above 0: the complaint, or "".
std::string above_zero(const std::string& text);

// "power 412 W of 700 · SM 1980 MHz · memory 3201 MHz · 54 C · not throttled", or why the card does not say.
std::string state_text(const DeviceState& state);
nlohmann::json state_json(const DeviceState& state);
// Device, versions, commit: the head of a file of figures.
nlohmann::json bench_head(const ChosenDevice& device, const std::string& what);
void write_bench_json(const std::string& path, const nlohmann::json& figures);

}  // namespace mantissa
