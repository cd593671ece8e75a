#include "app/run_console.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "base/units.h"
#include "base/version.h"
#include "ops/gemm.h"

namespace mantissa {

double process_seconds() {
  // /proc/self/stat, field 22: start in clock ticks after boot; the name in field 2 may hold anything but ends the last
  // parenthesis (proc(5)).
  std::ifstream stat("/proc/self/stat");
  std::string line, field;
  double start = 0;
  timespec now{};
  if (!std::getline(stat, line) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  for (int i = 3; i < 22; ++i) fields >> field;
  fields >> start;
  const double up = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  return std::max(0.0, up - start / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

void print_machine(Console& console, const MachineRates& rates, const ChosenDevice& device) {
  const Machine m = machine();
  std::string line = fmt::format("mantissa {} ({}) · {} · {} threads", kVersion, commit(),
                                 m.cpu.empty() ? "CPU" : m.cpu, max_threads());
  if (!device.gpu)
    line += fmt::format(" · {} · GEMM {:.0f} GFLOP/s BF16, {:.0f} FP32 (measured)", name_of(detect_isa()),
                        rates.bf16_gflops, rates.f32_gflops);
  console.line(line);
  console.line("device    " + device.text);
  if (!device.note.empty()) console.line("          " + device.note);
}

std::string mfu_text(double mfu, const MachineRates& rates, const ChosenDevice& device) {
  if (!device.gpu) return fmt::format("mfu {} of the measured GEMM rate", percent_text(mfu));
  return fmt::format("mfu {} of {:.1f} TFLOP/s ({})", percent_text(mfu), rates.bf16_gflops * 1e-3, rates.method);
}

void print_data(Console& console, const Dataset& data, const TrainConfig& config) {
  const DataReport& d = data.report();
  const std::string name = d.name.empty() ? config.data.train : d.name + (d.version.empty() ? "" : " " + d.version);
  const std::string documents = d.train.documents > 0 ? grouped(d.train.documents) + " documents · " : "";
  console.line(
      fmt::format("data      {} · {}{} tokens · {} rows of {} · {} validation rows · unigram entropy {:.3f} nats{}",
                  name, documents, grouped(d.train.tokens), grouped(d.train.rows), data.sequence_length(),
                  grouped(d.validation.rows), d.unigram_entropy, d.entropy_sampled ? " (sampled)" : ""));
  if (!d.tokenizer.empty())
    console.line(fmt::format("          tokenizer {} · EOS {}", d.tokenizer,
                             data.eos() >= 0 ? fmt::format("{} ({})", data.eos(), d.eos_origin) : "none"));
  if (d.train.padding > 0)
    console.line(fmt::format("          {} of the tokens pad rows, {} positions have a label",
                             percent_text(static_cast<double>(d.train.padding) / static_cast<double>(d.train.tokens)),
                             grouped(d.train.labels)));
  for (const std::string& part : left_out(d)) console.line("          left out: " + part);
  for (const std::string& note : d.notes) console.line("          " + note);
}

void print_run(Console& console, Trainer& trainer, const TrainConfig& config) {
  const ModelConfig& m = config.model;
  console.line(fmt::format("model     {} {}L {}H {}/{} heads of {} · {} parameters{} · {}", m.arch, m.num_hidden_layers,
                           m.hidden_size, m.num_attention_heads, m.num_key_value_heads, m.head_dim,
                           count_text(static_cast<double>(count_parameters(m))), m.tie_word_embeddings ? " (tied)" : "",
                           config.model_init.empty() ? "from scratch" : "from " + config.model_init));
  if (const std::string dropout = config.model_init.empty() ? "" : hf_dropout(config.init_folder()); !dropout.empty())
    console.warn(fmt::format("{}: asks for dropout ({}); training here has none",
                             join_path(config.model_init, "config.json"), dropout));
  console.line(fmt::format("precision {} weights · {} ({}) · scope {} · {:.1f}% of linear GEMM FLOPs below 16 bits",
                           config.precision.weights, config.precision.recipe, trainer.path(), config.precision.scope,
                           100 * trainer.low_precision_share()));
  if (const std::string note = trainer.rules_note(); !note.empty()) console.line("          " + note);
  std::string parts;
  for (const auto& [purpose, bytes] : trainer.memory().ledger.rows())
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", purpose, bytes_text(static_cast<double>(bytes)));
  console.line(fmt::format("memory    {} = {} of {}", parts,
                           bytes_text(static_cast<double>(trainer.memory().ledger.total())),
                           bytes_text(static_cast<double>(trainer.memory().device_bytes))));
  if (const MemoryPlan& plan = trainer.memory(); plan.checkpoint_bytes > 0)
    console.line(fmt::format("          {} a checkpoint, {}", bytes_text(static_cast<double>(plan.checkpoint_bytes)),
                             plan.copies ? "and as much of the host's memory for the copy it is written from"
                                         : "written while training stands still: no room for a copy"));
  console.line(fmt::format("batch     {} tokens a step ({} x {} x {}) · {} steps · {:.2f} MFLOP a token",
                           grouped(config.batch.tokens), trainer.memory().micro_rows, trainer.memory().accumulation,
                           config.data.sequence_length, grouped(trainer.steps()), trainer.flops().mfu / 1e6));
}

Sink console_sink(Console& console, const TrainConfig& config, const ChosenDevice& device) {
  // Where each line is kept, a line each log.every steps; a terminal rewrites one.
  const auto shown = [&console, every = config.log.every](const StepReport& r) {
    return console.interactive() || r.step == 1 || r.step == r.steps || r.step % every == 0;
  };
  const On take{
      [&console, init = config.model_init](const WeightsLoaded& w) {
        const auto size = static_cast<double>(w.bytes);
        console.line(fmt::format("weights   {} of {} in {:.2f} s: {:.2f} GB/s", bytes_text(size), init, w.seconds,
                                 1e-9 * size / w.seconds));
      },
      [&console, &device](const RunReady& r) {
        if (device.gpu) console.line(fmt::format("started   {:.1f} s: weights, plans, graphs", r.seconds));
      },
      [&console, &device](const FirstStep& r) {
        if (device.gpu) console.line(fmt::format("          {:.1f} s: the first step", r.seconds));
      },
      [&console, shown](const StepReport& r) {
        if (shown(r)) console.status(step_line(r));
      },
      [&console](const EvalReport& r) {
        console.line(fmt::format("eval at step {}: loss {:.4f}, perplexity {:.2f}", r.step, r.loss, std::exp(r.loss)));
      },
      [&console](const SampleReport& r) { console.line(sample_line(r)); },
      [&console](const Resumed& r) {
        console.line(fmt::format("goes on   behind step {} of {} · {}", r.step, r.steps, r.from));
      },
      [&console](const CheckpointSaved& s) {
        console.line(fmt::format("saved     step {} · {} · training stood still {:.3f} s, written in {:.2f} s", s.step,
                                 bytes_text(static_cast<double>(s.bytes)), s.copy_seconds, s.write_seconds));
      },
      [&console](const Warning& w) { console.warn(w.text); },
      [](const auto&) {},
  };
  return [take](const Event& event) { std::visit(take, event); };
}

std::string step_line(const StepReport& r) {
  const double share = static_cast<double>(r.step) / static_cast<double>(r.steps);
  const double left = r.seconds / static_cast<double>(r.step) * static_cast<double>(r.steps - r.step);
  const std::string memory =
      r.memory_bytes > 0 ? fmt::format(" | {}", bytes_text(static_cast<double>(r.memory_bytes))) : "";
  return fmt::format("step {:>5}/{} {} | loss {:.4f} | grad {:.2f} | lr {:.1e} | {} tok/s | mfu {}{} | eta {}", r.step,
                     r.steps, percent_text(share), r.loss, r.grad_norm, r.lr,
                     grouped(static_cast<int64_t>(r.tokens_per_s)), percent_text(r.mfu), memory, duration_text(left));
}

std::string sample_line(const SampleReport& r) {
  return fmt::format("sample at step {} | {} -> {}", r.step, Json(r.prompt).dump(), Json(r.text).dump());
}

}  // namespace mantissa
