#include "app/inspect_run.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/display.h"
#include "base/text.h"
#include "base/units.h"
#include "report/html_text.h"
#include "report/table.h"

namespace mantissa {
namespace {

using report::at_path;
using report::fixed;
using report::Number;
using report::number_at;
using report::plain;

constexpr size_t kTerm = 22, kWidth = 110;  // columns: of the terms, of a line

class Page {
 public:
  void section(const char* title) { title_ = title; }
  // A line "  term  value"; nothing for an empty value. A longer value goes on below itself.
  void fact(const std::string& term, const std::string& value) {
    if (value.empty()) return;
    if (!title_.empty()) text_ += fmt::format("{}{}\n", text_.empty() ? "" : "\n", std::exchange(title_, ""));
    std::string line = fmt::format("  {:<{}}", term, kTerm);
    size_t used = line.size();
    for (const std::string& word : split(displayed(value), ' ')) {
      if (used > kTerm + 2 && used + 1 + word.size() > kWidth) {
        text_ += line + "\n";
        line = std::string(kTerm + 2, ' ');
        used = line.size();
      }
      line += (used > kTerm + 2 ? " " : "") + word;
      used += word.size() + 1;
    }
    text_ += line + "\n";
  }
  void fact(const std::string& term, const Json& info, const char* path) { fact(term, plain(at_path(info, path))); }
  const std::string& text() const { return text_; }

 private:
  std::string title_, text_;
};

// "4 layers · 256 wide": the values that are there, each before its noun.
std::string counted(const Json& info, std::initializer_list<std::pair<const char*, const char*>> parts) {
  std::vector<std::string> texts;
  for (const auto& [path, noun] : parts)
    if (const std::string value = plain(at_path(info, path)); !value.empty())
      texts.push_back(*noun ? fmt::format("{} {}", value, noun) : value);
  return join(texts, " · ");
}

std::string bytes_or_none(const Number& bytes) { return bytes ? bytes_text(*bytes) : ""; }

std::string percent(const Number& fraction) { return fraction ? fixed(*fraction * 100, 1) + " %" : ""; }

void add_machine(Page& page, const Json& info) {
  page.section("Machine");
  page.fact("GPU", counted(info, {{"machine.gpu.name", ""}, {"machine.gpu.driver", "driver"}}));
  page.fact("libraries", counted(info, {{"machine.gpu.cuda", "CUDA"},
                                        {"machine.gpu.cublaslt", "cuBLASLt"},
                                        {"machine.gpu.cudnn", "cuDNN"}}));
  page.fact("processor", info, "machine.cpu");
  page.fact("cores", counted(info, {{"machine.cores", "cores"}, {"machine.threads", "threads"}, {"machine.isa", ""}}));
  page.fact("memory", bytes_or_none(number_at(info, "machine.memory_bytes")));
  const Number bf16 = number_at(info, "machine.gemm_gflops.bf16"), f32 = number_at(info, "machine.gemm_gflops.f32");
  if (bf16 && f32) page.fact("GEMM rate", fmt::format("{:.0f} GFLOP/s BF16, {:.0f} FP32 (measured)", *bf16, *f32));
}

void add_model(Page& page, const Json& info) {
  page.section("Model");
  page.fact("architecture", counted(info, {{"model.arch", ""}, {"model.parameters", "parameters"}}));
  page.fact("sizes", counted(info, {{"model.layers", "layers"},
                                    {"model.hidden", "hidden"},
                                    {"model.intermediate", "intermediate"},
                                    {"model.vocab", "vocabulary"}}));
  page.fact("heads",
            counted(info, {{"model.heads", "heads"}, {"model.kv_heads", "of keys"}, {"model.head_dim", "wide"}}));
  page.fact("embeddings", plain(at_path(info, "model.tied")) == "yes" ? "tied" : "untied");
  page.fact("begins from", info, "model.init");
}

// The linear layers by what computes them: "mxfp8 emulated, E4M3 | E4M3 | E4M3: 28 layers, layers.0.attn.qkv to ...".
void add_layers(Page& page, const Json& info) {
  struct Group {
    std::string key, recipe, formats, first, last;
    int64_t layers = 0;
  };
  std::vector<Group> groups;
  const Json layers = at_path(info, "precision.layers");
  if (!layers.is_array()) return;
  for (const Json& layer : layers) {
    const auto text = [&layer](const char* key) { return plain(at_path(layer, key)); };
    const std::string formats = join({text("input"), text("weight"), text("grad")}, " | ");
    const std::string key = join({text("recipe"), text("path"), formats}, "\n");
    if (groups.empty() || groups.back().key != key)
      groups.push_back({.key = key,
                        .recipe = counted(layer, {{"recipe", ""}, {"path", ""}}),
                        .formats = formats == " |  | " ? "" : " · " + formats,
                        .first = text("name")});
    groups.back().last = text("name");
    ++groups.back().layers;
  }
  constexpr size_t kMost = 12;  // a rule for every other layer makes a group of each
  for (size_t i = 0; i < std::min(groups.size(), kMost); ++i) {
    const Group& g = groups[i];
    page.fact(i == 0 ? "layers" : "",
              fmt::format("{} · {}{}", g.layers == 1 ? g.first : g.first + " to " + g.last, g.recipe, g.formats));
  }
  if (groups.size() > kMost)
    page.fact("", fmt::format("and {} groups more; --json lists each layer", groups.size() - kMost));
}

void add_data(Page& page, const Json& info) {
  page.section("Data");
  page.fact("text", counted(info, {{"data.name", ""}, {"data.version", ""}, {"data.format", ""}}));
  const Json files = at_path(info, "data.files");
  constexpr size_t kMost = 4;
  for (size_t i = 0; files.is_array() && i < std::min(files.size(), kMost); ++i)
    page.fact(i == 0 ? "files" : "",
              join({plain(at_path(files[i], "path")), bytes_or_none(number_at(files[i], "bytes"))}, " · "));
  if (files.is_array() && files.size() > kMost) page.fact("", fmt::format("and {} more", files.size() - kMost));
  page.fact("SHA-256", info, "data.sha256");
  page.fact("tokenizer", counted(info, {{"data.tokenizer", ""}, {"data.eos", "ends a document"}}));
  page.fact(
      "size",
      counted(info, {{"data.documents", "documents"}, {"data.tokens", "tokens"}, {"data.padding", "of padding"}}));
  page.fact("rows", counted(info, {{"data.rows", "for training"},
                                   {"data.validation_rows", "for validation"},
                                   {"data.sequence_length", "tokens each"}}));
  if (const Number entropy = number_at(info, "data.unigram_entropy_nats"))
    page.fact("unigram entropy", fixed(entropy, 4) + " nats a token");
}

void add_memory(Page& page, const Json& info) {
  page.section("Memory, as planned");
  const Number total = number_at(info, "memory.total_bytes"), device = number_at(info, "memory.device_bytes");
  const Json rows = at_path(info, "memory.rows");
  for (size_t i = 0; rows.is_array() && i < rows.size(); ++i)
    page.fact(displayed(plain(at_path(rows[i], "purpose"))), bytes_or_none(number_at(rows[i], "bytes")));
  if (total)
    page.fact("total",
              bytes_text(*total) + (device && *device > 0
                                        ? fmt::format(", {:.1f} % of {}", *total / *device * 100, bytes_text(*device))
                                        : ""));
}

void add_course(Page& page, const report::Run& run) {
  const report::Metrics& m = run.metrics;
  page.section("Course, in metrics.jsonl");
  if (!m.steps.empty())
    page.fact("steps", fmt::format("{}, loss {} at first, {} at last", m.steps.size(), fixed(m.steps.front().loss, 4),
                                   fixed(m.steps.back().loss, 4)));
  if (!m.evals.empty())
    page.fact("evaluations", fmt::format("{}, loss {} at step {}", m.evals.size(), fixed(m.evals.back().eval_loss, 4),
                                         m.evals.back().step));
  if (!m.quantization.empty())
    page.fact("quantization", fmt::format("{} errors of tensors, the last at step {}", m.quantization.size(),
                                          m.quantization.back().step));
  if (!run.samples.empty()) page.fact("samples", fmt::format("{} in samples.jsonl", run.samples.size()));
  if (m.torn) page.fact("cut", "the last line has no end");
}

void add_result(Page& page, const Json& result) {
  page.section("Result");
  const auto loss = [&](const char* key) { return number_at(result, key) ? fixed(number_at(result, key), 4) : ""; };
  page.fact("loss", loss("loss").empty() ? "" : loss("loss") + ", mean of the last tenth of the steps, nats a token");
  page.fact("held-out loss", loss("eval_loss"));
  if (const Number speed = number_at(result, "tokens_per_s"))
    page.fact("speed", report::grouped(speed) + " tok/s, " + plain(at_path(result, "path")));
  page.fact("MFU", percent(number_at(result, "mfu")));
  page.fact("memory", bytes_or_none(number_at(result, "memory_measured_bytes")));
  if (const Number seconds = number_at(result, "seconds")) page.fact("wall time", report::seconds_text(*seconds));
}

}  // namespace

std::string run_page(const report::Run& run) {
  const Json& info = run.info;
  Page page;
  page.section("Run");
  page.fact("folder", run.dir.string());
  page.fact("name", info, "name");
  page.fact("state", run.result.is_null() ? fmt::format("not finished: step {} of {}",
                                                        run.metrics.steps.empty() ? 0 : run.metrics.steps.back().step,
                                                        plain(at_path(info, "steps")))
                                          : "finished");
  page.fact("started", info, "started");
  page.fact("version", counted(info, {{"version", ""}, {"commit", ""}}));
  page.fact("seed", info, "seed");
  page.fact("steps", info, "steps");
  page.fact("batch", counted(info, {{"batch.tokens", "tokens"},
                                    {"batch.micro_batch", "rows a micro-batch"},
                                    {"batch.accumulation", "micro-batches"}}));
  add_machine(page, info);
  add_model(page, info);
  page.section("Precision");
  page.fact("weights", info, "precision.weights");
  page.fact("recipe", counted(info, {{"precision.recipe", ""}, {"precision.path", ""}}));
  page.fact("scope", info, "precision.scope");
  page.fact("below 16 bits",
            number_at(info, "precision.low_precision_share")
                ? percent(number_at(info, "precision.low_precision_share")) + " of the linear layers' FLOPs"
                : "");
  add_layers(page, info);
  add_data(page, info);
  page.section("FLOPs a token");
  if (const Number flops = number_at(info, "flops_per_token.mfu")) page.fact("training", report::flops_text(*flops));
  if (const Number peak = number_at(info, "peak.flops"))
    page.fact("peak", report::flops_text(*peak) + "/s, " + plain(at_path(info, "peak.method")));
  add_memory(page, info);
  add_course(page, run);
  if (!run.result.is_null()) add_result(page, run.result);
  return page.text();
}

Json run_record(const report::Run& run) { return {{"run", run.info}, {"result", run.result}}; }

}  // namespace mantissa
