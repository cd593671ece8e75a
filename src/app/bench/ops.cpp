// mantissa bench ops: every op against the CPU's on a small problem, then timed at training sizes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "app/bench/bench.h"
#include "app/bench/cases.h"
#include "base/text.h"
#include "base/units.h"

namespace mantissa {
namespace {

struct OpsOptions : BenchOptions {
  int64_t tokens = 0;  // 0: 16,384 on a GPU, 2,048 on a CPU
  double warm_s = 0;   // 0: 0.3 on a GPU, 0.05 on a CPU
  std::string only;
};

constexpr int64_t kSmallTokens = 512;

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// The worst output's error against the CPU's op; on the CPU itself infinite or 0: finite outputs, or not.
double verify(const BenchCase& c, BenchStage& stage) {
  BenchStage host(nullptr);
  constexpr uint64_t kSeed = 100;
  const BenchRun expected = c.make(host, kSmallTokens, kSeed);
  expected.run(host.exec());
  const BenchRun run = c.make(stage, kSmallTokens, kSeed);
  stage.reserve_scratch(run.scratch);
  run.run(stage.exec());
  stage.synchronize();
  double worst = 0;
  for (size_t i = 0; i < run.outputs.size(); ++i)
    worst = std::max(worst, relative_error(stage.read(run.outputs[i]), host.read(expected.outputs[i])));
  if (run.scalar) {
    const double found = *run.scalar, wanted = *expected.scalar;
    worst = std::max(worst, std::abs(found - wanted) / std::max(std::abs(wanted), 1e-30));
  }
  stage.clear();
  return worst;
}

struct OpRow {
  double error = 0, us = 0, spread = 0, gb_per_s = 0, copy_share = 0, tflops = 0;
};

OpRow measure(const BenchCase& c, BenchStage& stage, const OpsOptions& o, double copy) {
  std::vector<BenchRun> sets;
  do {
    sets.push_back(c.make(stage, o.tokens, 1000 * (sets.size() + 1)));
    stage.reserve_scratch(sets.back().scratch);
  } while (sets.size() < kMaxSets && sets.front().bytes * static_cast<double>(sets.size()) < kCaches);
  const auto work = [&](int64_t i) { sets[static_cast<size_t>(i) % sets.size()].run(stage.exec()); };
  const BenchTiming t = time_repeats(stage, work, o.warm_s, o.seconds);
  OpRow row{.us = t.us, .spread = t.spread, .gb_per_s = sets.front().bytes / t.us / 1e3};
  row.copy_share = row.gb_per_s * 1e9 / copy;
  row.tflops = sets.front().flops / t.us / 1e6;
  sets.clear();
  stage.clear();
  return row;
}

bool parse(OpsOptions& o, const std::vector<std::string>& args) {
  o.seconds = 0.2;
  CommandLine command(
      "Every op, checked against the CPU's on a small problem, then timed on random data in rotated buffers.",
      "bench ops");
  add_bench_flags(command, o);
  command.option("--tokens", o.tokens, "rows of a training-size problem, a multiple of 256 (16384; CPU: 2048)")
      .within(256, 1 << 20);
  command.option("--warm-up", o.warm_s, "seconds of the same load before a row (0.3; CPU: 0.05)").check(above_zero);
  command.option("--only", o.only, "ops or shapes whose name holds this text");
  if (!command.parse(args)) return false;
  if (o.tokens % 256 != 0) fail(Exit::kUsage, "--tokens: {} is not a multiple of 256", o.tokens);
  return true;
}

}  // namespace

int bench_ops(const std::vector<std::string>& args) {
  OpsOptions o;
  if (!parse(o, args)) return 0;
  const ChosenDevice chosen = choose_device(o.device, {"bf16"});
  BenchStage stage(chosen.gpu.get());
  if (o.warm_s == 0) o.warm_s = chosen.gpu ? 0.3 : 0.05;
  if (o.tokens == 0) o.tokens = chosen.gpu ? 16384 : 2048;
  fmt::print("device    {}\n", chosen.text);
  const double copy = copy_rate(stage);
  fmt::print("copy      {:.0f} GB/s read + write\n", copy / 1e9);
  if (chosen.gpu) fmt::print("state     {}\n", state_text(chosen.gpu->state()));
  fmt::print("tokens    {} · T rows; parameter ops take {} elements\n\n", o.tokens, grouped(o.tokens * 16384));
  fmt::print("{:<18} {:<40} {:>9} {:>10} {:>7} {:>8} {:>7} {:>8}\n", "op", "shape", "error", "us", "spread", "GB/s",
             "% copy", "TFLOP/s");
  nlohmann::json rows = nlohmann::json::array();
  int failures = 0, count = 0;
  for (const BenchCase& c : bench_cases()) {
    if (!o.only.empty() && (c.op + " " + c.shape).find(o.only) == std::string::npos) continue;
    ++count;
    const double error = verify(c, stage);
    if (!(error <= c.bound)) {
      ++failures;
      fmt::print("{:<18} {:<40} {:>9.1e} FAILED: above {:.1e}; not timed\n", c.op, c.shape, error, c.bound);
      rows.push_back({{"op", c.op}, {"shape", c.shape}, {"error", error}, {"bound", c.bound}, {"failed", true}});
      continue;
    }
    const OpRow r = measure(c, stage, o, copy);
    fmt::print("{:<18} {:<40} {:>9.1e} {:>10.1f} {:>7} {:>8.0f} {:>7} {:>8}\n", c.op, c.shape, error, r.us,
               percent_text(r.spread), r.gb_per_s, percent_text(r.copy_share),
               r.tflops > 0 ? fmt::format("{:.1f}", r.tflops) : "");
    std::fflush(stdout);
    rows.push_back({{"op", c.op},
                    {"shape", c.shape},
                    {"error", error},
                    {"bound", c.bound},
                    {"us", r.us},
                    {"spread", r.spread},
                    {"gb_per_s", r.gb_per_s},
                    {"copy_share", r.copy_share},
                    {"tflops", r.tflops}});
  }
  if (count == 0) fail(Exit::kUsage, "--only: {}: no op or shape holds it", printable(o.only));
  nlohmann::json figures = bench_head(chosen, "ops");
  figures["copy_gb_per_s"] = copy / 1e9;
  figures["tokens"] = o.tokens;
  figures["rows"] = rows;
  if (chosen.gpu) {
    figures["state"] = state_json(chosen.gpu->state());
    fmt::print("\nstate     {}\n", state_text(chosen.gpu->state()));
  }
  write_bench_json(o.json, figures);
  if (failures > 0) fail(Exit::kInternal, "bench ops: {} of {} differ from the CPU's ops", failures, count);
  return 0;
}

}  // namespace mantissa
