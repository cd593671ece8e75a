// mantissa plan CONFIG: what a run takes, before it is started.
#include <algorithm>
#include <cmath>

#include "app/flags.h"
#include "app/read_config.h"
#include "app/run_console.h"
#include "app/verbs.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/text.h"
#include "base/units.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

// CLI11's form of a check: the complaint, or "".
std::string positive(const std::string& text) {
  double value = 0;
  return parse_double(text, value) && value > 0 ? "" : fmt::format("{}, expected a number above 0", printable(text));
}

struct PlanOptions {
  std::string path;
  std::string device;  // a key of known_gpus()
  double tokens_per_s = 0, mfu = 0, peak_tflops = 0, memory_gib = 0;
  int64_t ranks = 1;
};

// Tokens of a pass and the mean attended length, from the data where it is on the disk.
struct DataFacts {
  int64_t tokens = 0;  // 0: not known, and train.steps or train.tokens give the run's length
  double segment_length = 0;
  std::string source;
  int64_t row_segments = 0;  // documents of a row at most; 0: not known
};

// What the memory is planned for, and in words what was assumed.
struct PlannedDevice {
  PlanTarget target;
  std::string text;
  ChosenDevice here;  // keeps the GPU of this machine open
  std::vector<std::string> notes;
};

// "--device=h100, h200 or b200"
std::string device_flags() {
  std::vector<std::string> keys;
  for (const KnownGpu& gpu : known_gpus()) keys.emplace_back(gpu.key);
  const std::string last = keys.back();
  keys.pop_back();
  return fmt::format("--device={} or {}", join(keys, ", "), last);
}

PlannedDevice device_of(const PlanOptions& o, const TrainConfig& c) {
  PlannedDevice planned;
  PlanTarget& target = planned.target;
  const auto stated = static_cast<int64_t>(o.memory_gib * (1 << 30));
  const auto size = [&] { return bytes_text(static_cast<double>(target.bytes)); };
  if (!o.device.empty()) {
    const auto& gpus = known_gpus();
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const KnownGpu& g) { return g.key == o.device; });
    target = {.bytes = stated > 0 ? stated : gpu->memory_bytes, .gpu = true};
    for (const std::string& recipe : c.recipes(false))
      if (const std::string refusal = gpu_refusal(recipe, {.gpu = true, .sm = gpu->sm}); !refusal.empty())
        planned.notes.push_back(fmt::format("{}, which {} is not: a run there is refused", refusal, gpu->name));
    planned.text =
        fmt::format("{}, assumed: {} free, dense BF16 peak {} TFLOP/s", gpu->name, size(), gpu->bf16_peak_tflops);
  } else if (stated > 0) {
    target = {.bytes = stated, .gpu = c.device.wants_gpu()};
    planned.text = fmt::format("{} with {} free, assumed", target.gpu ? "a GPU" : "cpu: a machine", size());
  } else {
    try {
      // A GPU is planned for under every recipe; what `auto` takes is told as a run takes it.
      planned.here = choose_device(c.device, c.device.wants_gpu() ? std::vector<std::string>{} : c.recipes(false));
      planned.text = planned.here.text;
      target = planned.here.gpu ? target_of(*planned.here.gpu, 0) : PlanTarget{.bytes = machine().memory_bytes};
    } catch (const Error& error) {
      if (error.code() != Exit::kUnavailable) throw;
      target = {.gpu = true};
      planned.text = fmt::format("a GPU that is not here ({}); {} plans for one", error.what(), device_flags());
    }
  }
  if (o.ranks > 1)
    planned.notes.push_back(
        fmt::format("{} devices are assumed: a run on more than one is not in this version", o.ranks));
  return planned;
}

DataFacts facts_of(const TrainConfig& c) {
  if (!c.data.train.empty() && exists(c.data.train)) {
    const Dataset data = Dataset::load(c.data, static_cast<uint64_t>(c.run.seed));
    return {data.tokens(Split::kTrain), data.report().train.segment_length, c.data.train,
            std::max(data.report().train.most_segments, data.report().validation.most_segments)};
  }
  const std::string absent =
      c.data.train.empty() ? "" : fmt::format("; data.train: {} is not on this disk", c.data.train);
  if (c.data_tokens > 0)
    return {c.data_tokens, static_cast<double>(c.data.sequence_length), "data.tokens of the config" + absent};
  if (c.train.steps == 0 && c.train.tokens == 0)
    fail(Exit::kUsage,
         "data.train: {} is not on this disk; give data.tokens, train.tokens or train.steps to plan without it",
         c.data.train.empty() ? "(none)" : c.data.train);
  return {0, static_cast<double>(c.data.sequence_length), "no data; every row taken as one document" + absent};
}

void print_flops(const FlopsPerToken& f) {
  const auto row = [](const char* name, double flops, const char* formula) {
    fmt::print("  {:<26} {:>10.4f} GFLOP  {}\n", name, flops / 1e9, formula);
  };
  fmt::print("FLOPs per token (training, 3 x forward)\n");
  row("mfu", f.mfu, "3 (L (4 H QW + 4 H KW + 2 s QW + 6 H I) + 2 H V), causal, s = segment length");
  row("nanogpt_legacy_v1", f.nanogpt_legacy_v1, "6 N + 12 L QW S");
  row("combined_formula_v2", f.combined_formula_v2, "3 (L (2 H^2 (2 + 2/G) + 4 S H + 6 H I) + 2 H V)");
  row("component_summation_v2025", f.component_summation_v2025,
      "3 (L (2 H QW + 4 H KW + 4 S QW + 2 QW H + 6 H I) + 2 H V)");
  row("hfu", f.hfu, "component sum with what recompute runs again");
  fmt::print("  attention/FFN ratio of a layer's forward {:.3f}\n", f.attention_to_ffn_ratio);
}

void print_curve(const TrainConfig& c, int64_t steps) {
  constexpr int kColumns = 60, kRows = 8;
  std::vector<double> y(kColumns);
  for (int i = 0; i < kColumns; ++i) {
    const auto step = 1 + static_cast<int64_t>(
                              std::llround(static_cast<double>(i) / (kColumns - 1) * static_cast<double>(steps - 1)));
    y[static_cast<size_t>(i)] = c.schedule.factor(step, steps);
  }
  fmt::print("schedule  {} · {} warm-up steps of {} · peak {:.2e}\n", c.schedule.name, c.schedule.warmup_steps, steps,
             c.optimizer.adamw.lr);
  for (int row = kRows; row >= 1; --row) {
    std::string line;
    for (double v : y) line += v >= (row - 0.5) / kRows ? "█" : " ";
    fmt::print("  {:>8.1e} |{}\n", c.optimizer.adamw.lr * row / kRows, line);
  }
}

// The ledger of one device, and where the run does not fit, what would. With `required` that is an error.
void print_memory(TrainConfig c, int64_t ranks, const PlanTarget& target, bool required) {
  if (c.rows_per_step() % ranks != 0)
    fail(Exit::kUsage, "--ranks: {} devices do not divide the {} rows of a step", ranks, c.rows_per_step());
  c.batch.tokens /= ranks;
  const MemoryPlan plan = find_plan(c, target);
  fmt::print("memory    micro-batch {} rows x {} accumulation{}\n", plan.micro_rows, plan.accumulation,
             ranks > 1 ? fmt::format(" on each of {} devices", ranks) : "");
  for (const auto& [purpose, bytes] : plan.ledger.rows())
    fmt::print("  {:<26} {:>12}\n", purpose, bytes_text(static_cast<double>(bytes)));
  const std::string total = bytes_text(static_cast<double>(plan.ledger.total()));
  if (target.bytes == 0)
    fmt::print("  {:<26} {:>12}, held against no GPU\n", "total", total);
  else
    fmt::print("  {:<26} {:>12} of {} ({:.1f}%)\n", "total", total, bytes_text(static_cast<double>(target.bytes)),
               plan.percent());
  if (plan.checkpoint_bytes > 0)
    fmt::print("  {:<26} {:>12} on the disk (train.checkpoint_every: {}), {}\n", "a checkpoint",
               bytes_text(static_cast<double>(plan.checkpoint_bytes)), c.train.checkpoint_every,
               plan.copies ? "written from a copy in the host's memory"
                           : "written while training stands still: no room for a copy");
  if (plan.fits) return;
  try {
    refuse_plan(c, plan, target);
  } catch (const Error& error) {
    if (required) throw;
    fmt::print("memory    does not fit this {}; --device or --memory-gib plans for another. {}\n",
               target.gpu ? "GPU" : "machine", error.what());
  }
}

// What --mfu is a share of, in TFLOP/s, and of what that is the peak.
std::pair<double, std::string> peak_of(const PlanOptions& o, const PlannedDevice& planned) {
  if (o.peak_tflops > 0) return {o.peak_tflops, "stated"};
  const auto known = [](const KnownGpu& gpu, const char* more) {
    return std::pair{gpu.bf16_peak_tflops, fmt::format("dense BF16 peak of {}{}", gpu.name, more)};
  };
  for (const KnownGpu& gpu : known_gpus())
    if (o.device == gpu.key) return known(gpu, "");
  if (planned.target.gpu && !planned.here.gpu) return known(known_gpus().front(), ", assumed");
  const MachineRates rates = measure_rates(planned.here.gpu.get());
  return {rates.bf16_gflops * 1e-3, planned.here.gpu ? rates.method : "BF16 GEMM rate of this CPU, measured now"};
}

void print_time(const PlanOptions& o, const PlannedDevice& planned, const FlopsPerToken& f, double tokens) {
  double rate = o.tokens_per_s;
  std::string from = "stated";
  if (rate == 0 && o.mfu > 0) {
    const auto [peak, of] = peak_of(o, planned);
    rate = o.mfu * peak * 1e12 * static_cast<double>(o.ranks) / f.mfu;
    from = fmt::format("{} of {} x {:.6g} TFLOP/s, {}", percent_text(o.mfu), o.ranks, peak, of);
  }
  if (rate == 0) {
    fmt::print("time      give --tokens-per-s or --mfu\n");
    return;
  }
  fmt::print("time      {} at {} tok/s ({}) = {:.2f} hours\n", duration_text(tokens / rate),
             grouped(static_cast<int64_t>(rate)), from, tokens / rate / 3600);
}

}  // namespace

int plan_verb(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  const std::vector<std::string> overrides = take_overrides(args);
  PlanOptions o;
  CommandLine command(
      "Memory, FLOPs, steps and time of a config. Any key of the config can follow as --section.key=value.", "plan");
  command.option("config", o.path, "YAML file").required();
  command.option("--tokens-per-s", o.tokens_per_s, "speed of all devices for the time, measured elsewhere")
      .check(positive);
  command.option("--mfu", o.mfu, "speed for the time as a share of --peak-tflops, or of the device's peak")
      .check(positive);
  command.option("--peak-tflops", o.peak_tflops, "dense BF16 peak of the device").check(positive);
  std::vector<std::string> gpus;
  for (const KnownGpu& gpu : known_gpus()) gpus.emplace_back(gpu.key);
  command.option("--device", o.device, "plan for this GPU, which need not be there").one_of(gpus);
  command.option("--memory-gib", o.memory_gib, "memory of the device; default: that of --device or of this machine")
      .check(positive);
  command.option("--ranks", o.ranks, "devices that share the rows of a step, each with the whole model")
      .within(1, 1 << 16);
  if (!command.parse(args)) return 0;
  const TrainConfig c = read_train_config(o.path, overrides, {.planning = true});
  c.refuse_unread(true);  // the config of a run or of a comparison
  PlannedDevice device = device_of(o, c);
  const DataFacts data = facts_of(c);
  const int64_t steps = c.steps(data.tokens);
  c.schedule.validate(steps);
  const double tokens = static_cast<double>(steps) * static_cast<double>(c.batch.tokens);
  const auto parameters = static_cast<double>(count_parameters(c.model));
  const FlopsPerToken f =
      flops_per_token(c.model, c.data.sequence_length, data.segment_length, parse_recompute(c.train.recompute));

  fmt::print("device    {}\n", device.text);
  for (const std::string& note : device.notes) fmt::print("          {}\n", note);
  fmt::print("model     {} · {} parameters ({})\n", c.model.arch, grouped(count_parameters(c.model)),
             count_text(parameters));
  fmt::print("data      {} tokens a pass ({}) · mean attended segment {:.0f} of {}\n", grouped(data.tokens),
             data.source, data.segment_length, c.data.sequence_length);
  fmt::print("steps     {} of {} tokens = {} tokens · {:.2f} a parameter · Chinchilla (20 a parameter) {}\n",
             grouped(steps), grouped(c.batch.tokens), grouped(static_cast<int64_t>(tokens)), tokens / parameters,
             count_text(20 * parameters));
  print_flops(f);
  fmt::print("total     {:.3e} FLOP by mfu\n", f.mfu * tokens);
  print_curve(c, steps);
  print_time(o, device, f, tokens);
  device.target.row_segments = data.row_segments;
  print_memory(c, o.ranks, device.target, !o.device.empty() || o.memory_gib > 0);
  return 0;
}

}  // namespace mantissa
