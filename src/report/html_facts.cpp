// Memory, FLOP accounting, setup and method.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "report/html_sections.h"
#include "report/html_text.h"
#include "report/table.h"
#include "report/verdict.h"

namespace mantissa::report {
namespace {

using Cells = std::vector<std::vector<std::string>>;

constexpr size_t kMostPurposes = 24;  // columns of the ledger of several runs

std::string percent(const Number& fraction) { return fixed(fraction ? Number(*fraction * 100) : Number(), 1); }

std::string bytes_cell(const Number& bytes) { return bytes ? bytes_text(*bytes) : "–"; }

// Purpose -> bytes of one run's ledger, in its order.
std::vector<std::pair<std::string, double>> ledger(const Run& run) {
  std::vector<std::pair<std::string, double>> rows;
  const Json list = at_path(run.info, "memory.rows");
  if (!list.is_array()) return rows;
  for (const Json& row : list)
    if (const Number bytes = number_at(row, "bytes")) rows.emplace_back(plain(at_path(row, "purpose")), *bytes);
  return rows;
}

std::string share_of(const Number& part, const Number& whole) {
  return part && whole && *whole > 0 ? fmt::format("{:.1f}%", *part / *whole * 100) : "–";
}

std::string one_ledger(const Run& run) {
  const Number total = number_at(run.info, "memory.total_bytes"), device = number_at(run.info, "memory.device_bytes");
  Cells rows;
  for (const auto& [purpose, bytes] : ledger(run))
    rows.push_back({escaped(purpose), bytes_text(bytes), share_of(bytes, total)});
  rows.push_back({"<strong>total</strong>", bytes_cell(total), share_of(total, device) + " of the device"});
  return html_table("Planned memory", {"purpose", "bytes", "share"}, rows, {false, true, true}, "narrow");
}

// One run by its label; several by their weights, where they share them, and their numbers.
std::string plan_label(const std::vector<Run>& runs, const std::vector<size_t>& members) {
  const Run& first = runs[members.front()];
  if (members.size() == 1) return run_cell(first);
  std::string numbers;
  bool same_weights = true;
  for (const size_t member : members) {
    numbers += (numbers.empty() ? "" : ", ") + std::to_string(member + 1);
    same_weights &= runs[member].row.weights == first.row.weights;
  }
  return fmt::format("{} <span class=\"rest\">rows {}</span>",
                     same_weights ? escaped(first.row.weights) + " weights" : "same plan", numbers);
}

std::string all_ledgers(const std::vector<Run>& runs) {
  std::vector<std::string> purposes;
  bool others = false;
  const auto named = [&](const std::string& purpose) {
    return std::find(purposes.begin(), purposes.end(), purpose) != purposes.end();
  };
  for (const Run& run : runs)
    for (const auto& [purpose, bytes] : ledger(run))
      if (!named(purpose)) purposes.size() < kMostPurposes ? purposes.push_back(purpose) : void(others = true);
  std::vector<std::string> header = {"run"};
  for (const std::string& purpose : purposes) header.push_back(escaped(purpose));
  if (others) header.emplace_back("others");
  header.insert(header.end(), {"total", "of device"});
  std::vector<bool> numeric(header.size(), true);
  numeric[0] = false;
  // Rows of the same plan stand together: cells without the first -> the runs.
  std::vector<std::pair<std::vector<std::string>, std::vector<size_t>>> plans;
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto entries = ledger(runs[r]);
    if (entries.empty()) continue;
    std::vector<std::string> cells;
    for (const std::string& purpose : purposes) {
      Number bytes;
      for (const auto& [name, value] : entries)
        if (name == purpose) bytes = bytes.value_or(0) + value;
      cells.push_back(bytes_cell(bytes));
    }
    Number rest;
    for (const auto& [name, value] : entries)
      if (!named(name)) rest = rest.value_or(0) + value;
    if (others) cells.push_back(bytes_cell(rest));
    const Number total = number_at(runs[r].info, "memory.total_bytes");
    cells.push_back(bytes_cell(total));
    cells.push_back(share_of(total, number_at(runs[r].info, "memory.device_bytes")));
    const auto same = std::find_if(plans.begin(), plans.end(), [&](const auto& plan) { return plan.first == cells; });
    if (same == plans.end())
      plans.push_back({std::move(cells), {r}});
    else
      same->second.push_back(r);
  }
  Cells rows;
  for (const auto& [cells, members] : plans) {
    rows.push_back({plan_label(runs, members)});
    rows.back().insert(rows.back().end(), cells.begin(), cells.end());
  }
  return html_table("Planned memory", header, rows, numeric, "dense");
}

struct Method {
  const char *name, *formula, *remark;
};

// FLOPs per token of one training step; the formulas of docs and log.
constexpr Method kMethods[] = {
    {"mfu", "3 ( L (4 H QW + 4 H KW + 2 S QW + 6 H I) + 2 H V )",
     "causal: scores and values counted once over the triangle, each packed segment at its own length; 4 H I for a "
     "GELU MLP"},
    {"nanogpt_legacy_v1", "6 N + 12 L QW S",
     "PaLM's heuristic: N with embedding and head, full attention, no grouped heads"},
    {"combined_formula_v2", "3 ( L (2 H² (2 + 2/G) + 4 S H + 6 H I) + 2 H V )", "full attention; takes QW for H"},
    {"component_summation_v2025", "3 ( L (2 H QW + 4 H KW + 4 S QW + 2 QW H + 6 H I) + 2 H V )",
     "full attention, component by component"},
    {"hfu", "the component sum and what recompute runs again", "work done, not work needed"},
};

std::string definition(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "<dl>\n";
  for (const auto& [term, text] : entries)
    if (!text.empty()) out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(term), escaped(text));
  return out + "</dl>\n";
}

std::string gflops(const Json& info, const char* dtype) {
  const Number rate = number_at(info, fmt::format("machine.gemm_gflops.{}", dtype));
  return rate ? fmt::format("{} GFLOP/s {}", grouped(rate), dtype) : "";
}

std::string layer_recipes(const Json& info) {
  const Json layers = at_path(info, "precision.layers");
  std::vector<std::pair<std::string, std::string>> groups;  // recipe, layers
  std::map<std::string, size_t> index;
  if (!layers.is_array()) return {};
  for (const Json& layer : layers) {
    const std::string recipe = plain(at_path(layer, "recipe")), name = plain(at_path(layer, "name"));
    const auto [at, fresh] = index.emplace(recipe, groups.size());
    if (fresh)
      groups.emplace_back(recipe, name);
    else
      groups[at->second].second += ", " + name;
  }
  if (groups.empty()) return {};
  std::string out = "<details><summary>Recipe of each layer</summary>\n";
  return out + definition(groups) + "</details>\n";
}

std::string joined(std::initializer_list<std::string> parts, const char* separator) {
  std::string out;
  for (const std::string& part : parts)
    if (!part.empty()) out += (out.empty() ? std::string() : std::string(separator)) + part;
  return out;
}

std::string counted(const Json& info, const char* path, const char* noun) {
  const Json value = at_path(info, path);
  return value.is_null() ? "" : fmt::format("{} {}", plain(value), noun);
}

// "NVIDIA H200 (sm_90), 139.8 GiB, driver 570.1"; "" of a run on the CPU.
std::string gpu_text(const Json& machine) {
  const Json gpu = at_path(machine, "machine.gpu");
  if (!gpu.is_object()) return "";
  const Number memory = number_at(gpu, "memory_bytes");
  return joined({fmt::format("{} (sm_{})", plain(at_path(gpu, "name")), plain(at_path(gpu, "sm"))),
                 memory ? bytes_text(*memory) : "", "driver " + plain(at_path(gpu, "driver"))},
                ", ");
}

std::string gpu_libraries(const Json& machine) {
  const Json gpu = at_path(machine, "machine.gpu");
  if (!gpu.is_object()) return "";
  const auto version = [&](const char* name, const char* key) {
    const std::string text = plain(at_path(gpu, key));
    return text.empty() ? std::string("no ") + name : fmt::format("{} {}", name, text);
  };
  return joined({version("CUDA", "cuda"), version("cuBLASLt", "cublaslt"), version("cuDNN", "cudnn"),
                 plain(at_path(gpu, "deterministic")) == "yes" ? "deterministic" : ""},
                " · ");
}

// Share of the training time in which a step had no batch yet; "" where it was not recorded.
std::string data_wait(const Metrics& metrics) {
  double waited = 0;
  for (const StepLine& step : metrics.steps) {
    if (!step.data_wait_s) return "";
    waited += *step.data_wait_s;
  }
  return metrics.steps.empty() || metrics.steps.back().seconds <= 0
             ? ""
             : fmt::format("{:.2f} % of the time", 100 * waited / metrics.steps.back().seconds);
}

}  // namespace

Section memory_section(const ReportData& data) {
  std::string body;
  const auto with =
      std::count_if(data.runs.begin(), data.runs.end(), [](const Run& run) { return !ledger(run).empty(); });
  if (with == 0) return {};
  if (with == 1)
    body = one_ledger(
        *std::find_if(data.runs.begin(), data.runs.end(), [](const Run& run) { return !ledger(run).empty(); }));
  else
    body = all_ledgers(data.runs);
  body += "<p class=\"note\">The plan is made before the first step; nothing is allocated during a step.</p>\n";
  return {"memory", "Memory", body};
}

Section mfu_section(const ReportData& data) {
  if (data.runs.empty()) return {};
  const Json& info = data.runs.front().info;
  Cells rows;
  for (const Method& method : kMethods) {
    const Number flops = number_at(info, std::string("flops_per_token.") + method.name);
    rows.push_back(
        {fmt::format("<code>{}</code>", method.name), flops ? flops_text(*flops) : "–",
         fmt::format("<code>{}</code><span class=\"sub\">{}</span>", escaped(method.formula), method.remark)});
  }
  std::string body =
      "<p>Model FLOPs utilization is tokens a second × FLOPs per token ÷ the peak. The field counts FLOPs in four "
      "ways, so the same run has four figures; <code>mfu</code> is the one in the tables.</p>\n";
  if (const Number peak = number_at(info, "peak.flops"))
    body +=
        fmt::format("<p>Peak: {}/s{}{}, whatever the precision of the run.</p>\n", flops_text(*peak),
                    at_path(info, "peak.method").is_null() ? "" : ", ", escaped(plain(at_path(info, "peak.method"))));
  body += html_table("FLOPs per token of training", {"method", "per token", "formula"}, rows, {false, true, false},
                     "methods");
  body +=
      "<p class=\"note\">S sequence length, H hidden, I intermediate, L layers, V vocabulary, N parameters, QW query "
      "heads × "
      "head size, KW key heads × head size, G query heads per key head. Norms, RoPE, activations and the embedding "
      "look-up are not counted.</p>\n";
  Cells figures;
  const CompareResult result = rows_of(data);
  for (const CompareRow& row : result.rows)
    if (row.ended())
      figures.push_back({escaped(row_words(row)) + (row.emulated() ? " <span class=\"mark\">emulated</span>" : ""),
                         percent(row.mfu), percent(row.nanogpt_legacy_v1), percent(row.combined_formula_v2),
                         percent(row.component_summation_v2025)});
  if (!figures.empty())
    body += "<details><summary>MFU of each run by each method, %</summary>\n" +
            html_table("MFU by method, %",
                       {"run", "mfu", "nanogpt_<wbr>legacy_v1", "combined_<wbr>formula_v2",
                        "component_<wbr>summation_<wbr>v2025"},
                       figures, {false, true, true, true, true}, "dense") +
            "</details>\n";
  return {"mfu", "FLOPs and MFU", body};
}

Section setup_section(const ReportData& data) {
  const Json info = data.runs.empty() ? Json() : data.runs.front().info;
  const Json machine =
      data.compare && data.compare->machine.is_object() ? Json{{"machine", data.compare->machine}} : info;
  const Json text = data.compare && data.compare->data.is_object() ? Json{{"data", data.compare->data}} : info;
  const Json model = data.compare && data.compare->model.is_object() ? Json{{"model", data.compare->model}} : info;
  const bool one = data.runs.size() == 1;
  const Number memory = number_at(machine, "machine.memory_bytes");
  std::string body = "<div class=\"facts\">\n<div><h3>Machine</h3>\n";
  body += definition({{"GPU", gpu_text(machine)},
                      {"GPU libraries", gpu_libraries(machine)},
                      {"processor", plain(at_path(machine, "machine.cpu"))},
                      {"cores", plain(at_path(machine, "machine.cores"))},
                      {"instructions", plain(at_path(machine, "machine.isa"))},
                      {"memory", memory ? bytes_text(*memory) : ""},
                      {"GEMM rate, measured", joined({gflops(machine, "bf16"), gflops(machine, "f32")}, ", ")}});
  body += "</div>\n<div><h3>Model</h3>\n";
  body += definition(
      {{"architecture", plain(at_path(model, "model.arch"))},
       {"parameters", plain(at_path(model, "model.parameters"))},
       {"layers", plain(at_path(model, "model.layers"))},
       {"hidden", plain(at_path(model, "model.hidden"))},
       {"intermediate", plain(at_path(model, "model.intermediate"))},
       {"heads", joined({plain(at_path(model, "model.heads")), plain(at_path(model, "model.kv_heads"))}, " / ")},
       {"head size", plain(at_path(model, "model.head_dim"))},
       {"vocabulary", plain(at_path(model, "model.vocab"))},
       {"embeddings tied", plain(at_path(model, "model.tied"))}});
  body += "</div>\n<div><h3>Data</h3>\n";
  body += definition(
      {{"text", joined({plain(at_path(text, "data.name")), plain(at_path(text, "data.version"))}, " ")},
       {"SHA-256", plain(at_path(text, "data.sha256"))},
       {"documents", plain(at_path(text, "data.documents"))},
       {"tokens", plain(at_path(text, "data.tokens"))},
       {"rows", joined({plain(at_path(text, "data.rows")), counted(text, "data.sequence_length", "tokens")}, " × ")},
       {"unigram entropy", counted(text, "data.unigram_entropy_nats", "nats a token")}});
  body += "</div>\n<div><h3>Run</h3>\n";
  body += definition(
      {{"started", plain(at_path(info, "started"))},
       {"version", joined({plain(at_path(info, "version")), plain(at_path(info, "commit"))}, " · ")},
       {"seeds",
        data.compare && !data.compare->seeds.is_null() ? plain(data.compare->seeds) : plain(at_path(info, "seed"))},
       {"steps", plain(at_path(info, "steps"))},
       {"batch",
        joined({counted(info, "batch.tokens", "tokens"), counted(info, "batch.micro_batch", "rows a micro-batch"),
                counted(info, "batch.accumulation", "micro-batches")},
               " · ")},
       {"precision", one ? plain(at_path(info, "precision.summary")) : ""},
       {"wall time", one && data.runs.front().row.seconds ? seconds_text(*data.runs.front().row.seconds) : ""},
       {"waited for data", one ? data_wait(data.runs.front().metrics) : ""},
       {"Δ loss against", data.compare ? data.compare->baseline : ""}});
  body += "</div>\n</div>\n";
  if (one) body += layer_recipes(info);
  std::string config = data.compare ? data.compare->config : "";
  if (!data.runs.empty() && !data.runs.front().config.empty()) config = data.runs.front().config;
  if (!config.empty())
    body += fmt::format("<details><summary>Config{}</summary><pre tabindex=\"0\">{}</pre></details>\n",
                        data.compare && data.runs.size() > 1 ? " of the first row" : "", escaped(config));
  return {"setup", "Setup", body};
}

Section method_section(const ReportData& data) {
  std::string body =
      "<ul class=\"findings\">\n"
      "<li>Loss is the mean of the training loss over the last tenth of the steps, in nats a token; evaluation loss "
      "is taken on text held out from training.</li>\n";
  if (data.compare)
    body +=
        "<li>Every row has the same seed, data order and tokens; only weights, recipe and scope differ.</li>\n"
        "<li>A native row runs its format on the hardware. An emulated row quantizes exactly and multiplies the codes "
        "in "
        "BF16 with FP32 accumulation: its loss is the format's, its speed is not.</li>\n";
  body += "<li>Speeds are what each run measured on this machine, with whatever else ran there.</li>\n";
  for (const std::string& note : data.notes) body += fmt::format("<li>{}</li>\n", escaped(note));
  return {"method", "How the figures were taken", body + "</ul>\n"};
}

}  // namespace mantissa::report
