#include <fmt/core.h>

#include "app/bench/bench.h"
#include "app/verbs.h"
#include "base/machine.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/version.h"

namespace mantissa {

void add_bench_flags(CommandLine& command, BenchOptions& o) {
  command.option("--device", o.device.name, "auto, cpu, cuda or cuda:N").show_default();
  command.flag("--deterministic", o.device.deterministic, "kernels of the deterministic mode");
  command.option("--seconds", o.seconds, "measuring time of a row").check(above_zero).show_default();
  command.option("--json", o.json, "file to write the figures to");
}

std::string above_zero(const std::string& text) {
  double value = 0;
  return parse_double(text, value) && value > 0 ? "" : fmt::format("{}, expected a number above 0", printable(text));
}

std::string state_text(const DeviceState& s) {
  if (!s.absence.empty()) return s.absence;
  return fmt::format("power {:.0f} W of {:.0f} · SM {} MHz · memory {} MHz · {} C · {}", s.power_w, s.power_limit_w,
                     s.sm_clock_mhz, s.memory_clock_mhz, s.temperature_c,
                     s.throttle.empty() ? "not throttled" : "throttled: " + s.throttle);
}

nlohmann::json state_json(const DeviceState& s) {
  if (!s.absence.empty()) return {{"absence", s.absence}};
  return {{"power_w", s.power_w},
          {"power_limit_w", s.power_limit_w},
          {"sm_clock_mhz", s.sm_clock_mhz},
          {"memory_clock_mhz", s.memory_clock_mhz},
          {"temperature_c", s.temperature_c},
          {"throttle", s.throttle}};
}

nlohmann::json bench_head(const ChosenDevice& device, const std::string& what) {
  nlohmann::json head = {{"bench", what}, {"version", kVersion}, {"commit", commit()}, {"device", device.text}};
  if (device.gpu)
    head["gpu"] = device_json(*device.gpu, true);
  else
    head["machine"] = {{"cpu", machine().cpu}, {"cores", machine().cores}};
  return head;
}

void write_bench_json(const std::string& path, const nlohmann::json& figures) {
  if (path.empty()) return;
  write_output(path, figures.dump(1) + "\n");
  fmt::print("figures   {}\n", path);
}

int bench_verb(const std::vector<std::string>& args) {
  constexpr const char* kUse =
      "usage: mantissa bench ops [flags]           every op, checked against the CPU's, then timed: us, GB/s, % of a "
      "copy\n"
      "       mantissa bench gemm [flags]          products of four models, three passes: TFLOP/s, % of the peak\n"
      "       mantissa bench step CONFIG [flags]   whole optimizer steps: tok/s, MFU, % of the floor, where time goes\n"
      "flags: --help after any of them\n";
  if (args.empty() || args[0] == "--help" || args[0] == "-h") {
    fmt::print("{}", kUse);
    return args.empty() ? static_cast<int>(Exit::kUsage) : 0;
  }
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args[0] == "ops") return bench_ops(rest);
  if (args[0] == "gemm") return bench_gemm(rest);
  if (args[0] == "step") return bench_step(rest);
  fail(Exit::kUsage, "bench: {}: expected ops, gemm or step", printable(args[0]));
}

}  // namespace mantissa
