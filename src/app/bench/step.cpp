// mantissa bench step CONFIG: whole optimizer steps, verified, timed, held against the floor, and where the time goes.
#include <algorithm>
#include <cmath>

#include "app/bench/bench.h"
#include "app/bench/stage.h"
#include "app/read_config.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "model/flops.h"
#include "model/step_floor.h"
#include "ops/gemm.h"
#include "recipes/recipe.h"
#include "train/step_bench.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

struct StepOptions : BenchOptions {
  std::string path;
  bool random = false, no_profile = false;
};

bool parse(StepOptions& o, const std::vector<std::string>& args) {
  CommandLine command(
      "Whole optimizer steps of a config on new weights: tok/s, MFU, % of the floor, where the time goes. Any key of "
      "the "
      "config can follow as --section.key=value.",
      "bench step");
  o.seconds = 20;
  command.option("config", o.path, "YAML file").required();
  command.option("--seconds", o.seconds, "of whole steps, at least three").check(above_zero).show_default();
  command.flag("--random", o.random, "random tokens, one document a row, although the config's data is there");
  command.flag("--no-profile", o.no_profile, "leave out the eager step that says where the time goes");
  command.option("--json", o.json, "file to write the figures to");
  return command.parse(args);
}

// Of a GPU that the table does not know: its rates scaled by a few measured products and a copy; of a CPU: its own.
Yardstick yardstick_of(const ChosenDevice& chosen, const DeviceConfig& config) {
  Yardstick y;
  if (!chosen.gpu) {
    Exec exec;
    y.flat_tflops = measure_gemm_rate(exec, DType::kBF16, 1536, 1536, 1536, 0.4) / 1e3;
    BenchStage stage(nullptr);
    y.bytes_per_s = copy_rate(stage);
    y.origin = fmt::format("this CPU: {:.3f} TFLOP/s in BF16, {:.1f} GB/s", y.flat_tflops, y.bytes_per_s / 1e9);
    return y;
  }
  if (chosen.gpu->info().name.find(y.origin) != std::string::npos) return y;
  DeviceConfig plain = config;
  plain.search = false;
  const ChosenDevice first_choice = choose_device(plain, {});
  BenchStage stage(first_choice.gpu.get());
  stage.reserve_scratch(kGemmScratchBytes);
  constexpr int64_t kM = 16384;
  constexpr int64_t kShapes[][2] = {{4096, 2048}, {12288, 2048}, {2048, 6144}};
  double log_ratio = 0;
  for (const auto& [n, k] : kShapes) {
    const GemmDesc desc{.a = GemmSide::plain(stage.normal(DType::kBF16, {kM, k}, 1)),
                        .b = GemmSide::plain(stage.normal(DType::kBF16, {n, k}, 2)),
                        .c = stage.zeros(DType::kBF16, {kM, n}),
                        .bias = {}};
    const BenchTiming t = time_repeats(
        stage, [&](int64_t) { gemm(stage.exec(), desc); }, 0.3, 0.1);
    const double tflops = 2e-6 * static_cast<double>(kM) * static_cast<double>(n) * static_cast<double>(k) / t.us;
    log_ratio += std::log(tflops / y.gemm_tflops(n, k)) / static_cast<double>(std::size(kShapes));
    stage.clear();
  }
  y.scale = std::exp(log_ratio);
  y.bytes_per_s = copy_rate(stage);
  y.origin = fmt::format("H200 x {:.3f} by three products, {:.2f} TB/s by a copy, measured here", y.scale,
                         y.bytes_per_s / 1e12);
  return y;
}

std::string range_text(const StateRange& s) {
  if (s.samples == 0) return s.absence.empty() ? "not sampled" : s.absence;
  std::string reasons;
  for (const auto& [reason, count] : s.throttle)
    reasons += fmt::format("{}{} in {} of {}", reasons.empty() ? "" : ", ", reason, count, s.samples);
  return fmt::format("power {:.0f} W mean, {:.0f} most of {:.0f} · SM {} to {} MHz · memory {} MHz · {} C · {}",
                     s.power_mean, s.power_max, s.power_limit_w, s.sm_clock_min, s.sm_clock_max, s.memory_clock_mhz,
                     s.temperature_max, reasons.empty() ? "not throttled" : "throttled: " + reasons);
}

// A line of the breakdown, with the floor's share of it where it has one.
void print_part(const std::string& name, double ms, double step_ms, int64_t calls, double us_per_token) {
  fmt::print("  {:<22} {:>9.2f} {:>7} {:>7} {:>10.3f}\n", name, ms, percent_text(ms / step_ms),
             calls > 0 ? fmt::format("{}", calls) : "", us_per_token);
}

struct Group {
  const char* name;
  double floor_us;
  std::vector<std::string> parts;
};

// The profile's ops as milliseconds of the measured step. Ops overlap nothing, so what is left is gaps; where they sum
// to more than the step took (an eager op carries its launch), all are scaled down to it.
nlohmann::json print_breakdown(const StepBench& bench, const StepFloor& floor, int64_t tokens) {
  const StepProfile& p = bench.profile;
  const double step_ms = bench.median_s() * 1e3, ops_ms = p.ops_us / 1e3;
  const double scale = std::min(1.0, step_ms / ops_ms);
  const double per_token = 1e3 / static_cast<double>(tokens);
  fmt::print("\nwhere a step's {:.1f} ms go: one eager step of {:.1f} ms, whose ops take {:.1f} ms{}\n", step_ms,
             p.step_us / 1e3, ops_ms,
             scale < 1 ? fmt::format("; they are scaled by {:.3f} to the measured step", scale) : "");
  fmt::print("  {:<22} {:>9} {:>7} {:>7} {:>10}\n", "", "ms", "% step", "calls", "us/token");
  nlohmann::json parts = nlohmann::json::array();
  for (const StepPart& part : p.parts) {
    const double ms = part.us / 1e3 * scale;
    print_part(part.name, ms, step_ms, part.calls, ms * per_token);
    parts.push_back({{"part", part.name}, {"ms", ms}, {"calls", part.calls}});
  }
  const double gaps = step_ms - ops_ms * scale;
  print_part("gaps", gaps, step_ms, 0, gaps * per_token);
  parts.push_back({{"part", "gaps"}, {"ms", gaps}});

  const Group groups[] = {{"GEMMs", floor.gemm_us, {"fprop", "dgrad", "wgrad", "gemm"}},
                          {"logits", floor.logits_us, {"logits"}},
                          {"attention", floor.attention_us, {"attention forward", "attention backward"}}};
  fmt::print("  {:<22} {:>9} {:>9} {:>8}\n", "against the floor", "us/token", "floor", "%");
  double rest = bench.median_s() * 1e6 / static_cast<double>(tokens);
  const auto line = [](const char* name, double us, double least) {
    fmt::print("  {:<22} {:>9.3f} {:>9.3f} {:>8}\n", name, us, least, us > 0 ? percent_text(least / us) : "-");
  };
  for (const Group& group : groups) {
    double us = 0;
    for (const StepPart& part : p.parts)
      if (std::find(group.parts.begin(), group.parts.end(), part.name) != group.parts.end())
        us += part.us * scale / static_cast<double>(tokens);
    rest -= us;
    line(group.name, us, group.floor_us);
  }
  line("everything else, gaps", rest, floor.rest_us);
  return parts;
}

nlohmann::json range_json(const StateRange& s) {
  return {{"samples", s.samples},
          {"power_mean_w", s.power_mean},
          {"power_max_w", s.power_max},
          {"power_limit_w", s.power_limit_w},
          {"sm_clock_min", s.sm_clock_min},
          {"sm_clock_max", s.sm_clock_max},
          {"memory_clock", s.memory_clock_mhz},
          {"temperature_max", s.temperature_max},
          {"throttle", s.throttle},
          {"absence", s.absence}};
}

}  // namespace

int bench_step(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  StepOptions o;
  if (!parse(o, args)) return 0;
  const TrainConfig config = read_train_config(o.path, overrides, {.planning = true});
  config.refuse_unread(true);
  const ChosenDevice chosen = choose_device(config.device, config.recipes(false));
  std::unique_ptr<Dataset> data;
  if (!o.random && !config.data.train.empty() && exists(config.data.train))
    data = std::make_unique<Dataset>(Dataset::load(config.data, static_cast<uint64_t>(config.run.seed)));
  const Yardstick yardstick = yardstick_of(chosen, config.device);
  const MachineRates rates = measure_rates(chosen.gpu.get());

  const ModelConfig& m = config.model;
  fmt::print("device    {}\n", chosen.text);
  fmt::print("model     {} {}L {}H {}/{} heads of {} · vocabulary {} · {} parameters · {}\n", m.arch,
             m.num_hidden_layers, m.hidden_size, m.num_attention_heads, m.num_key_value_heads, m.head_dim,
             grouped(m.vocab_size), count_text(static_cast<double>(count_parameters(m))), o.path);
  std::fflush(stdout);
  const auto progress = [](const std::string& what, double seconds) {
    fmt::print("after     {:.1f} s: {}\n", seconds, what);
    std::fflush(stdout);
  };
  const StepBench bench = bench_steps(config, data.get(), chosen.gpu.get(),
                                      {.seconds = o.seconds, .profile = !o.no_profile, .progress = progress});

  const int64_t tokens = config.batch.tokens;
  const double step_s = bench.median_s(), tokens_per_s = static_cast<double>(tokens) / step_s;
  const FlopsPerToken flops =
      flops_per_token(m, config.data.sequence_length, bench.segment_length, parse_recompute(config.train.recompute));
  const StepFloor floor = step_floor(
      {.model = m, .segment_length = bench.segment_length, .tokens_per_step = tokens, .store = bench.store}, yardstick);
  const std::string rates_of_floor =
      yardstick.origin + (find_recipe(config.precision.recipe).quantizes() ? ", every product in BF16" : "");
  const double mfu = tokens_per_s * flops.mfu / (rates.bf16_gflops * 1e9);
  double measured_s = 0;
  for (const double s : bench.steps_s) measured_s += s;

  fmt::print("precision {} · weights {} · scope {} · recompute {} · graphs {} · {}\n", config.precision.recipe,
             config.precision.weights, config.precision.scope, config.train.recompute,
             chosen.gpu ? (config.device.graphs ? "on" : "off") : "none",
             config.device.deterministic ? "deterministic" : "fast");
  fmt::print("step      {} tokens: {} micro-batches of {} rows of {} · {}\n", grouped(tokens), bench.plan.accumulation,
             bench.plan.micro_rows, config.data.sequence_length,
             bench.packed
                 ? fmt::format("documents of {}, attended length {:.0f}", config.data.train, bench.segment_length)
                 : "random tokens, one document a row");
  fmt::print("verified  first loss {:.4f}, ln(vocabulary) {:.4f} · gradient norm {:.4g}\n", bench.first_loss,
             std::log(static_cast<double>(m.vocab_size)), bench.grad_norm);
  fmt::print("start     {:.1f} s until the first step (weights, plans, searches), which took {:.2f} s\n", bench.ready_s,
             bench.first_step_s);
  fmt::print("speed     {} tok/s, median of {} steps in {:.1f} s · spread {} · {:.2f} ms a step, {:.2f} to {:.2f}\n",
             grouped(std::llround(tokens_per_s)), bench.steps_s.size(), measured_s, percent_text(bench.spread(), 2),
             step_s * 1e3, bench.steps_s.front() * 1e3, bench.steps_s.back() * 1e3);
  fmt::print("mfu       {} · {:.4g} TFLOP/s of {:.4g} ({}) · {:.4f} GFLOP a token\n", percent_text(mfu),
             tokens_per_s * flops.mfu / 1e12, rates.bf16_gflops / 1e3, rates.method, flops.mfu / 1e9);
  fmt::print("floor     {} tok/s, {:.3f} us a token: GEMMs {:.3f}, logits {:.3f}, attention {:.3f}, rest {:.3f} ({})\n",
             grouped(std::llround(floor.tokens_per_s())), floor.us_per_token(), floor.gemm_us, floor.logits_us,
             floor.attention_us, floor.rest_us, rates_of_floor);
  fmt::print("of floor  {}\n", percent_text(tokens_per_s / floor.tokens_per_s()));
  const auto planned = static_cast<double>(bench.plan.ledger.total());
  const auto measured = static_cast<double>(bench.measured_bytes);
  if (chosen.gpu) {
    fmt::print("memory    {} planned · {} measured at the most ({:+.1f}%)\n", bytes_text(planned), bytes_text(measured),
               100 * (planned / measured - 1));
    fmt::print("card      {}\n", range_text(bench.state));
  } else {
    fmt::print("memory    {} planned\n", bytes_text(planned));
  }

  nlohmann::json figures = bench_head(chosen, "step");
  figures["config"] = o.path;
  figures["overrides"] = overrides;
  figures["tokens_per_s"] = tokens_per_s;
  figures["step_ms"] = step_s * 1e3;
  figures["spread"] = bench.spread();
  figures["steps"] = bench.steps_s.size();
  figures["tokens"] = tokens;
  figures["micro_rows"] = bench.plan.micro_rows;
  figures["accumulation"] = bench.plan.accumulation;
  figures["packed"] = bench.packed;
  figures["segment_length"] = bench.segment_length;
  figures["first_loss"] = bench.first_loss;
  figures["grad_norm"] = bench.grad_norm;
  figures["ready_s"] = bench.ready_s;
  figures["first_step_s"] = bench.first_step_s;
  figures["mfu"] = mfu;
  figures["tflops"] = tokens_per_s * flops.mfu / 1e12;
  figures["floor"] = {
      {"tokens_per_s", floor.tokens_per_s()}, {"gemm_us", floor.gemm_us}, {"logits_us", floor.logits_us},
      {"attention_us", floor.attention_us},   {"rest_us", floor.rest_us}, {"rates", rates_of_floor}};
  figures["floor_share"] = tokens_per_s / floor.tokens_per_s();
  figures["planned_bytes"] = bench.plan.ledger.total();
  figures["measured_bytes"] = bench.measured_bytes;
  figures["state"] = range_json(bench.state);
  figures["gemm_choices"] = bench.gemm_choices;
  if (!bench.profile.parts.empty()) {
    figures["parts"] = print_breakdown(bench, floor, tokens);
    figures["profiled_step_ms"] = bench.profile.step_us / 1e3;
    figures["profiled_ops_ms"] = bench.profile.ops_us / 1e3;
  }
  write_bench_json(o.json, figures);
  return 0;
}

}  // namespace mantissa
