// What a run computes on: the config's section `device`, and the device that it becomes on this machine.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/json.h"
#include "recipes/recipe.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace mantissa {

struct DeviceConfig {
  std::string name = "auto";  // auto | cpu | cuda | cuda:N
  bool deterministic = false, graphs = true, search = true;

  void describe(config::Fields& fields);
  // Exit::kUsage for a name of another form.
  void validate(const char* key = "device.name") const;
  bool wants_gpu() const { return name.starts_with("cuda"); }
  int ordinal() const;  // of cuda:N, else 0
};

struct ChosenDevice {
  std::unique_ptr<Device> gpu;  // null: the CPU
  std::string name;             // "NVIDIA H200", "cpu"
  std::string text;             // "NVIDIA H200 (sm_90, 132 SMs) · CUDA 13.0 · ...", or "cpu: " and why
  std::string note;             // what else the user is told once, or ""
};

// auto: the first GPU where the module loads, a GPU takes its kernels and every one of `recipes` runs there, else the
// CPU. Exit::kUnavailable with the reason where a GPU is asked for and cannot be had. Messages call the name `key`.
ChosenDevice choose_device(const DeviceConfig& config, const std::vector<std::string>& recipes,
                           const char* key = "device.name");

// What recipes are to run on: a device, or null for the CPU.
RecipeTarget target_of(const Device* device);
// Why the recipe does not run there, or "".
std::string gpu_refusal(const std::string& recipe, const RecipeTarget& target = {.gpu = true});

// "NVIDIA H200 (sm_90, 132 SMs) · CUDA 13.0 · cuBLASLt 13.1 · cuDNN 9.19"
std::string device_text(const DeviceInfo& info);
// run.json's machine.gpu.
Json device_json(const Device& device, bool graphs);
// Where searches keep what they found: $XDG_CACHE_HOME/mantissa, else ~/.cache/mantissa; "" where neither is set.
std::string cache_folder();

// GPUs that runs can be planned for without one.
struct KnownGpu {
  const char* key;          // "h200"
  const char* name;         // as the driver says it
  int sm;                   // compute capability * 10
  int64_t memory_bytes;     // free before a program touches it
  double bf16_peak_tflops;  // dense
};
const std::vector<KnownGpu>& known_gpus();
// Null where the table does not hold it.
const KnownGpu* find_gpu(const std::string& driver_name);

// Dense BF16 GFLOP/s that MFU is against and how it was found: the vendor's figure for a known GPU, else what a GEMM of
// this build reaches.
struct GpuPeak {
  double gflops = 0;
  std::string method;
};
GpuPeak gpu_peak(Device& device);
// GFLOP/s of a product M = N = K = 8192 in BF16 (4096 in F32), by events on the device.
double measure_gpu_gemm(Device& device, DType dtype);

}  // namespace mantissa
