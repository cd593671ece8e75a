#include "device/device_config.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "recipes/recipe.h"

namespace mantissa {
namespace {

constexpr char kWithOrdinal[] = "cuda:";

// N of "cuda:N", -1 where it is none.
int parse_ordinal(std::string_view name) {
  if (!name.starts_with(kWithOrdinal)) return -1;
  name.remove_prefix(sizeof kWithOrdinal - 1);
  int ordinal = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), ordinal);
  return error == std::errc{} && end == name.data() + name.size() && ordinal >= 0 ? ordinal : -1;
}

// Memory of a device for the length of a scope.
class DeviceBytes {
 public:
  DeviceBytes(Device& device, int64_t bytes) : device_(device), p_(device.allocate(bytes)) {}
  ~DeviceBytes() { device_.release(p_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* get() const { return p_; }

 private:
  Device& device_;
  void* p_;
};

// Kernels are compiled for few architectures: the first launch says whether this GPU takes them.
void try_kernel(Device& device) {
  const DeviceBytes memory(device, 512);
  Exec exec(device);
  auto* bytes = static_cast<std::byte*>(memory.get());
  cast(exec, {bytes + 256, DType::kBF16, {8}}, {bytes, DType::kF32, {8}});
  device.synchronize();
}

// The GPU, or null and `absence`: there is none that takes this build's kernels.
std::unique_ptr<Device> open_gpu(const DeviceConfig& config, std::string& absence, std::string& note) {
  if (device_count(absence) == 0) {
    absence = "no GPU: " + absence;
    return nullptr;
  }
  const std::string cache = cache_folder();
  const bool searches = config.search && !config.deterministic;
  std::unique_ptr<Device> device;
  // What is not there is a reason to take the CPU; a device that fails, or a kernel that does, is an error.
  try {
    device = open_device({.ordinal = config.ordinal(),
                          .deterministic = config.deterministic,
                          .search = config.search,
                          .cache_folder = cache});
    try_kernel(*device);
  } catch (const Error& error) {
    if (error.code() != Exit::kUnavailable) throw;
    absence = device ? fmt::format("{} (sm_{}) does not run this build's kernels: {}", device->info().name,
                                   device->info().sm, error.what())
                     : std::string(error.what());
    return nullptr;
  }
  if (searches && cache.empty())
    note = "neither XDG_CACHE_HOME nor HOME is set: GEMM algorithms are searched anew in every run";
  return device;
}

}  // namespace

void DeviceConfig::describe(config::Fields& f) {
  f.text("name", name, "auto (a GPU where one runs every recipe, else the CPU), cpu, cuda or cuda:N");
  f.boolean("deterministic", deterministic, "GPU: the same bits in every run; a CPU's always are");
  f.boolean("graphs", graphs, "GPU: a micro-step is captured once and launched as one graph");
  f.boolean("search", search, "GPU: GEMM algorithms are timed once for each shape; not where deterministic");
}

void DeviceConfig::validate(const char* key) const {
  if (name != "auto" && name != "cpu" && name != "cuda" && parse_ordinal(name) < 0)
    fail(Exit::kUsage, "{}: {}: expected auto, cpu, cuda or cuda:N", key, printable(name));
}

int DeviceConfig::ordinal() const { return std::max(0, parse_ordinal(name)); }

RecipeTarget target_of(const Device* device) {
  return device ? RecipeTarget{.gpu = true, .sm = device->info().sm} : RecipeTarget{};
}

std::string gpu_refusal(const std::string& recipe, const RecipeTarget& target) {
  const RecipePath path = find_recipe(recipe).path(target);
  return path.path == Path::kRefused ? fmt::format("recipe {} {}", recipe, path.refusal) : "";
}

ChosenDevice choose_device(const DeviceConfig& config, const std::vector<std::string>& recipes, const char* key) {
  config.validate(key);
  const auto cpu = [](const std::string& why) { return ChosenDevice{nullptr, "cpu", "cpu: " + why, ""}; };
  if (config.name == "cpu") return cpu(fmt::format("as {} says", key));
  std::string absence, note;
  std::unique_ptr<Device> device = open_gpu(config, absence, note);
  if (!device) {
    if (config.wants_gpu()) fail(Exit::kUnavailable, "{}: {}: {}", key, config.name, absence);
    return cpu(absence);
  }
  for (const std::string& recipe : recipes) {
    const std::string refusal = gpu_refusal(recipe, target_of(device.get()));
    if (refusal.empty()) continue;
    if (config.wants_gpu())
      fail(Exit::kUnavailable, "{}: {}, but {} (this is {}, sm_{}); {}: cpu runs it as exact emulation", key,
           config.name, refusal, device->info().name, device->info().sm, key);
    return cpu(fmt::format("{} is there, but {}", device->info().name, refusal));
  }
  ChosenDevice chosen{nullptr, device->info().name, device_text(device->info()), note};
  chosen.gpu = std::move(device);
  return chosen;
}

std::string device_text(const DeviceInfo& info) {
  const auto library = [](const char* name, const std::string& version) {
    return version.empty() ? std::string() : fmt::format(" · {} {}", name, version);
  };
  std::string text = fmt::format("{} (sm_{}, {} SMs){}{}", info.name, info.sm, info.multiprocessors,
                                 library("CUDA", info.cuda), library("cuBLASLt", info.cublaslt));
  text += info.cudnn.empty()
              ? fmt::format(" · no cuDNN{}{}", info.cudnn_absence.empty() ? "" : ": ", info.cudnn_absence)
              : library("cuDNN", info.cudnn);
  return text;
}

Json device_json(const Device& device, bool graphs) {
  const DeviceInfo& i = device.info();
  const DeviceOptions& o = device.options();
  Json free = nullptr;
  if (i.free_before_bytes >= 0) free = i.free_before_bytes;
  return {{"name", i.name},
          {"sm", i.sm},
          {"multiprocessors", i.multiprocessors},
          {"memory_bytes", i.memory_bytes},
          {"free_before_bytes", free},
          {"driver", i.driver},
          {"cuda", i.cuda},
          {"cublaslt", i.cublaslt},
          {"cudnn", i.cudnn},
          {"deterministic", o.deterministic},
          {"graphs", graphs},
          {"search", o.search && !o.deterministic}};
}

std::string cache_folder() {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::string(value ? value : "");
  };
  if (const std::string base = from("XDG_CACHE_HOME"); !base.empty()) return join_path(base, "mantissa");
  if (const std::string home = from("HOME"); !home.empty()) return join_path(home, ".cache/mantissa");
  return "";
}

const std::vector<KnownGpu>& known_gpus() {
  // Peaks: the vendor's data sheets, dense BF16 with FP32 sums (half of the figure with sparsity). Memory: what the
  // driver leaves of 80, 141 and 180 GB.
  static const std::vector<KnownGpu> table = {
      {"h100", "NVIDIA H100 80GB HBM3", 90, int64_t{79} << 30, 989.5},
      {"h200", "NVIDIA H200", 90, int64_t{139} << 30, 989.5},
      {"b200", "NVIDIA B200", 100, int64_t{178} << 30, 2250},
  };
  return table;
}

const KnownGpu* find_gpu(const std::string& driver_name) {
  for (const KnownGpu& gpu : known_gpus())
    if (driver_name == gpu.name) return &gpu;
  return nullptr;
}

GpuPeak gpu_peak(Device& device) {
  const std::string& name = device.info().name;
  if (const KnownGpu* known = find_gpu(name))
    return {known->bf16_peak_tflops * 1e3, fmt::format("dense BF16 peak of {}, by its data sheet", name)};
  return {measure_gpu_gemm(device, DType::kBF16), fmt::format("BF16 GEMM rate of {} measured at start-up", name)};
}

double measure_gpu_gemm(Device& device, DType dtype) {
  const int64_t size = dtype == DType::kF32 ? 4096 : 8192;
  Exec exec(device);
  return measure_gemm_rate(exec, dtype, size, size, size, 0.1);
}

}  // namespace mantissa
