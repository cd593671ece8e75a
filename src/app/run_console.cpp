#include "app/run_console.h"

#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/parallel.h"
#include "base/units.h"
#include "base/version.h"
#include "ops/gemm.h"

namespace mantissa {

void print_machine(Console& console, const MachineRates& rates) {
  const Machine m = machine();
  console.line(fmt::format("mantissa {} ({}) · {} · {} threads · {} · GEMM {:.0f} GFLOP/s BF16, {:.0f} FP32 (measured)",
                           kVersion, commit(), m.cpu.empty() ? "CPU" : m.cpu, max_threads(), name_of(detect_isa()),
                           rates.bf16_gflops, rates.f32_gflops));
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
  console.line(fmt::format("precision {} weights · {} ({}) · scope {} · {:.1f}% of linear GEMM FLOPs below 16 bits",
                           config.precision.weights, config.precision.recipe, trainer.path(), config.precision.scope,
                           100 * trainer.low_precision_share()));
  std::string parts;
  for (const auto& [purpose, bytes] : trainer.memory().ledger.rows())
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", purpose, bytes_text(static_cast<double>(bytes)));
  console.line(fmt::format("memory    {} = {} of {}", parts,
                           bytes_text(static_cast<double>(trainer.memory().ledger.total())),
                           bytes_text(static_cast<double>(trainer.memory().device_bytes))));
  console.line(fmt::format("batch     {} tokens a step ({} x {} x {}) · {} steps · {:.2f} MFLOP a token",
                           grouped(config.batch.tokens), trainer.memory().micro_rows, trainer.memory().accumulation,
                           config.data.sequence_length, grouped(trainer.steps()), trainer.flops().mfu / 1e6));
}

std::string step_line(const StepReport& r) {
  const double share = static_cast<double>(r.step) / static_cast<double>(r.steps);
  const double left = r.seconds / static_cast<double>(r.step) * static_cast<double>(r.steps - r.step);
  return fmt::format("step {:>5}/{} {} | loss {:.4f} | grad {:.2f} | lr {:.1e} | {} tok/s | mfu {} | eta {}", r.step,
                     r.steps, percent_text(share), r.loss, r.grad_norm, r.lr,
                     grouped(static_cast<int64_t>(r.tokens_per_s)), percent_text(r.mfu), duration_text(left));
}

std::string sample_line(const SampleReport& r) {
  return fmt::format("sample at step {} | {} -> {}", r.step, Json(r.prompt).dump(), Json(r.text).dump());
}

}  // namespace mantissa
