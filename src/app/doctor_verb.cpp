// doctor: what this machine and build offer: instruction sets, GPUs, libraries, GEMM choice and speed, native or
// emulated recipes.
#include <fmt/core.h>
#include <zstd.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "app/flags.h"
#include "app/verbs.h"
#include "base/machine.h"
#include "base/text.h"
#include "base/units.h"
#include "base/version.h"
#include "data/readers/parquet_module.h"
#include "device/device_config.h"
#include "ops/cpu_gemm/onednn.h"
#include "ops/gemm.h"
#include "recipes/recipe.h"
#include "report/assets.h"

namespace mantissa {
namespace {

constexpr int64_t kM = 1024, kN = 1024, kK = 1024;  // the product that is explained and timed
constexpr double kSeconds = 0.3;                    // measuring time a dtype

void print_machine(const Exec& exec) {
  const Machine m = machine();
  fmt::print("machine    {} · {} cores · {} threads · {:.1f} GiB memory\n", m.cpu.empty() ? "unnamed CPU" : m.cpu,
             m.cores, exec.threads(), static_cast<double>(m.memory_bytes) / (int64_t{1} << 30));
  fmt::print("           {}\n", m.system);
  fmt::print("cpu        {} · kernels run as {} (MANTISSA_ISA=base|avx2|avx512 lowers it)\n",
             m.features.empty() ? "no vector extension that kernels use" : m.features, name_of(exec.isa()));
}

void print_libraries() {
  fmt::print("libraries  {} · OpenMP {} · fmt {}.{}.{} · nlohmann-json {}.{}.{} · zstd {}\n", compiler(), _OPENMP,
             FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100, NLOHMANN_JSON_VERSION_MAJOR,
             NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH, ZSTD_versionString());
  fmt::print("oneDNN     {}\n",
             onednn_module().gemm ? "loaded: a GEMM candidate behind the own kernels" : onednn_module().absence);
  const ParquetLibrary& parquet = parquet_library();
  fmt::print("Parquet    {}\n",
             parquet.module ? fmt::format("loaded: Apache Arrow {}", parquet.module->arrow) : parquet.absence);
  const bool charts = !report::asset("dygraph.min.js").empty();
  fmt::print("report     {}\n", charts ? "tables and charts (dygraphs is embedded)"
                                       : "tables only: this build found no dygraphs (package libjs-dygraphs)");
}

// Who takes a product of this dtype, how fast, and why the better-placed candidates refused.
void print_gemm(Exec& exec, DType dtype) {
  std::vector<std::byte> a(bytes_of(dtype, kM * kK)), b(bytes_of(dtype, kN * kK)), c(bytes_of(dtype, kM * kN));
  const GemmDesc desc{.a = GemmSide::plain({a.data(), dtype, {kM, kK}}),
                      .b = GemmSide::plain({b.data(), dtype, {kN, kK}}),
                      .c = {c.data(), dtype, {kM, kN}},
                      .bias = {}};
  const GemmChoice choice = explain_gemm(exec, desc);
  const double rate = measure_gemm_rate(exec, dtype, kM, kN, kK, kSeconds);
  fmt::print("gemm       {:<5} {} · {:.0f} GFLOP/s at {} x {} x {}\n", name_of(dtype), choice.taken, rate, kM, kN, kK);
  for (const std::string& reason : choice.refused) fmt::print("                 {}\n", reason);
}

void print_state(const DeviceState& s) {
  if (!s.absence.empty()) {
    fmt::print("           state not known: {}\n", s.absence);
    return;
  }
  fmt::print("           {} MHz, memory {} MHz · {} °C · {:.0f} of {:.0f} W · {}\n", s.sm_clock_mhz, s.memory_clock_mhz,
             s.temperature_c, s.power_w, s.power_limit_w,
             s.throttle.empty() ? "not throttled" : "throttled: " + s.throttle);
}

// What the GPU reaches in a product that training would ask for; the library's first choice, without a search.
void print_gpu_rates(Device& device) {
  const KnownGpu* known = find_gpu(device.info().name);
  const double bf16 = measure_gpu_gemm(device, DType::kBF16) * 1e-3;
  fmt::print(
      "           GEMM {:.0f} TFLOP/s BF16{}, {:.1f} FP32 without TF32\n", bf16,
      known ? fmt::format(" ({:.0f}% of the peak of {})", 100 * bf16 / known->bf16_peak_tflops, known->bf16_peak_tflops)
            : " (no peak is known: MFU is against this)",
      measure_gpu_gemm(device, DType::kF32) * 1e-3);
}

void print_gpus() {
  std::string absence;
  const int count = device_count(absence);
  if (count == 0) fmt::print("gpu        none: {}\n", absence);
  for (int i = 0; i < count; ++i) {
    const ChosenDevice chosen = [i] {
      try {
        return choose_device({.name = fmt::format("cuda:{}", i), .search = false}, {});
      } catch (const Error& error) {
        if (error.code() != Exit::kUnavailable) throw;
        return ChosenDevice{nullptr, "", error.what(), ""};
      }
    }();
    fmt::print("gpu {:<6} {}\n", i, chosen.text);
    if (!chosen.gpu) continue;
    const DeviceInfo& info = chosen.gpu->info();
    fmt::print(
        "           {}, {} free · driver {} · PCI {}\n", bytes_text(static_cast<double>(info.memory_bytes)),
        info.free_before_bytes < 0 ? "unknown how much" : bytes_text(static_cast<double>(info.free_before_bytes)),
        info.driver.empty() ? "unknown" : info.driver, info.pci_bus_id);
    print_state(chosen.gpu->state());
    print_gpu_rates(*chosen.gpu);
  }
}

void print_recipes() {
  fmt::print("recipes    {:<15} {:<9} {}\n", "", "here", "input | weight | gradient");
  for (const RecipeEntry& entry : recipe_table()) {
    const RecipeInfo info = entry.make({}, {.name = "doctor", .n = kN, .k = kK})->info();
    fmt::print("           {:<15} {:<9} {} | {} | {}\n", entry.name, name_of(entry.path({}).path), info.input,
               info.weight, info.grad);
  }
  fmt::print(
      "           native: the products run in the format itself. emulated: a CPU has no FP8 or FP4 products, so codes\n"
      "           and scales are made exactly and multiplied in BF16 with FP32 sums; the speed is not the format's.\n");
  for (const int sm : {90, 100}) {
    std::string line;
    for (const Path path : {Path::kNative, Path::kEmulated, Path::kRefused}) {
      std::vector<std::string> names;
      for (const RecipeEntry& entry : recipe_table())
        if (entry.path({.gpu = true, .sm = sm}).path == path) names.emplace_back(entry.name);
      if (!names.empty()) line += fmt::format("{}{} {}", line.empty() ? "" : "; ", join(names, ", "), name_of(path));
    }
    fmt::print("           on a GPU of compute capability {}.{}: {}\n", sm / 10, sm % 10, line);
  }
}

}  // namespace

int doctor_verb(const std::vector<std::string>& args) {
  CommandLine command(
      "What this machine and build offer: CPU, GPUs, libraries, GEMMs, which recipe is native or emulated here.",
      "doctor");
  if (!command.parse(args)) return 0;
  Exec exec;
  fmt::print("mantissa {}\n", kVersion);
  print_machine(exec);
  print_libraries();
  print_gemm(exec, DType::kBF16);
  print_gemm(exec, DType::kF32);
  print_gpus();
  print_recipes();
  return 0;
}

}  // namespace mantissa
