#include "tests/report/synthetic.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "base/error.h"
#include "report/run_reader.h"

namespace mantissa::report::testing {
namespace fs = std::filesystem;
namespace {

constexpr double kTokensAStep = 16384, kStepSeconds = 1.75;
constexpr int kBlocks = 4;

struct Cost {
  double loss, seconds, snr;  // nats, share of a baseline step, dB
};

Cost cost_of(const Precision& p) {
  const double wide = p.scope == "linear+logits+norm" ? 2 : p.scope == "linear+logits" ? 1 : 0;
  if (p.recipe == "fp8-delayed") return {0.004 + 0.0012 * wide, 1.31 + 0.05 * wide, 27};
  if (p.recipe == "mxfp8") return {0.0022 + 0.0006 * std::min(wide, 1.0), 1.42 + 0.05 * wide, 29};
  if (p.recipe == "nvfp4") return {0.031 + 0.007 * std::min(wide, 1.0), 1.77 + 0.07 * wide, 15};
  return {0, 1, 0};
}

uint32_t seed_of(const Precision& p) {
  // As in a real comparison, mxfp8 and nvfp4 compute the same with and without the norm in their scope.
  const bool same = p.recipe != "fp8-delayed" && p.scope == "linear+logits+norm";
  uint32_t hash = 2166136261u;
  for (const char c : p.weights + p.recipe + (same ? "linear+logits" : p.scope))
    hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

double seconds_at(const Precision& p, int step) {
  return step * kStepSeconds * cost_of(p).seconds * (p.weights == "bf16" ? 0.93 : 1.0);
}

struct Curve {
  std::vector<double> loss, grad;
};

Curve curve_of(const Precision& p, int steps) {
  std::mt19937 data(7), own(seed_of(p));
  std::normal_distribution<double> batch, normal;  // each keeps its own second value
  Curve curve;
  double drift = 0;
  for (int s = 1; s <= steps; ++s) {
    const double t = static_cast<double>(s) / steps;
    const double course = 1.78 + 3.75 * std::exp(-t * 26) + 0.95 * std::exp(-t * 3.6);
    drift = 0.97 * drift + 0.0006 * normal(own);
    const double extra = cost_of(p).loss * (1 - std::exp(-t * 6)) + (p.weights == "bf16" ? 0.006 * t : 0);
    curve.loss.push_back(course + 0.035 * batch(data) + drift + 0.002 * normal(own) + extra);
    curve.grad.push_back(0.35 + 3.2 * std::exp(-t * 20) + 0.05 * std::abs(normal(own)));
  }
  return curve;
}

double last_tenth(const std::vector<double>& values) {
  const size_t n = std::max<size_t>(1, values.size() / 10);
  double sum = 0;
  for (size_t i = values.size() - n; i < values.size(); ++i) sum += values[i];
  return sum / static_cast<double>(n);
}

double learning_rate(int step, int steps) {
  const double warm = 30, decay = 0.8 * steps;
  if (step < warm) return 3e-3 * step / warm;
  if (step < decay) return 3e-3;
  return 3e-3 * 0.5 * (1 + std::cos(3.14159265 * (step - decay) / (steps - decay)));
}

Json quantization_at(const Precision& p, double t, std::mt19937& random) {
  Json list = Json::array();
  if (p.scope == "none") return list;
  std::normal_distribution<double> normal;
  std::vector<std::string> layers;
  for (int b = 0; b < kBlocks; ++b)
    for (const char* kind : {"attn.qkv", "attn.out", "mlp.gate_up", "mlp.down"})
      layers.push_back(fmt::format("layers.{}.{}", b, kind));
  if (p.scope != "linear") layers.push_back("logits");
  for (const std::string& layer : layers)
    for (const char* tensor : {"input", "weight", "grad"}) {
      const bool grad = tensor[0] == 'g', down = layer.ends_with("down");
      const double snr = cost_of(p).snr - (grad ? 5 : 0) - (down ? 3.5 * t : 0) + 0.7 * normal(random);
      list.push_back({{"layer", layer},
                      {"tensor", tensor},
                      {"amax", 3.5 + normal(random) * 0.2},
                      {"scale", 128.0},
                      {"snr_db", snr},
                      {"saturated", p.recipe == "fp8-delayed" ? std::abs(normal(random)) * 2e-5 : 0.0},
                      {"flushed", grad ? std::abs(normal(random)) * 0.012 + (down ? 0.03 * t : 0) : 0.0004}});
    }
  return list;
}

bool emulated(const Precision& p) { return p.scope != "none"; }

Json machine() {
  return {{"cpu", "AMD EPYC 9J45"},
          {"cores", 2},
          {"isa", "avx512bf16"},
          {"memory_bytes", 16624812032},
          {"gemm_gflops", {{"bf16", 412.6}, {"f32", 214.9}}}};
}

Json text(const SyntheticOptions& options) {
  return {{"name", options.data_name},
          {"version", "0.48.5+nmu3"},
          {"sha256", "6c2d5cf0f3c4f6ae94b1c4de0f6cbe5b0a33a9e13f3a4a2f9f1bb4a1c1d1e0f2"},
          {"documents", 126153},
          {"tokens", 39482113},
          {"rows", 77113},
          {"sequence_length", 512},
          {"unigram_entropy_nats", 3.1187}};
}

Json model() {
  return {{"arch", "qwen3"}, {"layers", kBlocks}, {"hidden", 256}, {"intermediate", 768},   {"heads", 4},
          {"kv_heads", 2},   {"head_dim", 64},    {"vocab", 256},  {"parameters", 3213568}, {"tied", false}};
}

Json result_of(const Precision& p, const SyntheticOptions& options) {
  const Curve curve = curve_of(p, options.steps);
  const double seconds = seconds_at(p, options.steps), speed = kTokensAStep * options.steps / seconds;
  const double mfu = speed * 21.1e6 / 412.6e9, loss = last_tenth(curve.loss);
  return {{"loss", loss},
          {"eval_loss", loss + 0.043},
          {"tokens_per_s", speed},
          {"mfu", mfu},
          {"nanogpt_legacy_v1", mfu * 1.18},
          {"combined_formula_v2", mfu * 1.09},
          {"component_summation_v2025", mfu * 1.09},
          {"memory_pct", p.weights == "bf16" ? 1.9 : 2.4},
          {"path", emulated(p) ? "emulated" : "native"},
          {"seconds", seconds + 1.4},
          {"steps", options.steps},
          {"tokens", kTokensAStep * options.steps}};
}

}  // namespace

TempDir::TempDir() {
  std::string name = (fs::temp_directory_path() / "mantissa-report-XXXXXX").string();
  if (!mkdtemp(name.data())) fail(Exit::kStorage, "{}: cannot be made", name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::vector<Precision> twenty_rows() {
  std::vector<Precision> rows = {{"fp32", "bf16", "none"}, {"bf16", "bf16", "none"}};
  for (const char* scope : {"linear", "linear+logits", "linear+logits+norm"})
    for (const char* recipe : {"fp8-delayed", "mxfp8", "nvfp4"})
      for (const char* weights : {"fp32", "bf16"}) rows.push_back({weights, recipe, scope});
  return rows;
}

void write_file(const fs::path& file, const std::string& content) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

void write_run(const fs::path& dir, const Precision& p, const SyntheticOptions& options, bool ended) {
  Json ledger = Json::array();
  const double scale = p.weights == "bf16" ? 0.5 : 1.0;
  for (const auto& [purpose, bytes] :
       std::vector<std::pair<std::string, double>>{{"weights", 12.9e6 * scale},
                                                   {"compute copy", p.weights == "bf16" ? 0 : 6.4e6},
                                                   {"gradients", 12.9e6 * scale},
                                                   {"optimizer", 25.7e6 * scale},
                                                   {"activations", 318.2e6},
                                                   {"scratch", 22.1e6}})
    ledger.push_back({{"purpose", purpose}, {"bytes", static_cast<int64_t>(bytes)}});
  Json layers = Json::array();
  for (int b = 0; b < kBlocks; ++b)
    layers.push_back({{"name", fmt::format("layers.{}.mlp.down", b)}, {"recipe", p.recipe}});
  layers.push_back({{"name", "logits"}, {"recipe", p.scope.starts_with("linear+") ? p.recipe : "bf16"}});
  const Json info = {{"version", "0.1.0"},
                     {"commit", "0a1b2c3"},
                     {"started", "2026-01-02T03:04:05Z"},
                     {"name", "quickstart"},
                     {"seed", 42},
                     {"machine", machine()},
                     {"model", model()},
                     {"data", text(options)},
                     {"precision",
                      {{"weights", p.weights},
                       {"recipe", p.recipe},
                       {"scope", p.scope},
                       {"path", emulated(p) ? "emulated" : "native"},
                       {"layers", layers},
                       {"summary", p.weights + " weights, " + p.recipe + " on 16 linear layers"}}},
                     {"batch", {{"tokens", 16384}, {"micro_batch", 8}, {"accumulation", 4}}},
                     {"steps", options.steps},
                     {"flops_per_token",
                      {{"mfu", 21.1e6},
                       {"nanogpt_legacy_v1", 24.9e6},
                       {"combined_formula_v2", 23.0e6},
                       {"component_summation_v2025", 23.0e6},
                       {"hfu", 23.0e6}}},
                     {"peak", {{"flops", 412.6e9}, {"method", "BF16 GEMM rate measured at start-up"}}},
                     {"memory",
                      {{"rows", ledger},
                       {"total_bytes", static_cast<int64_t>(398e6 * (0.8 + 0.2 * scale))},
                       {"device_bytes", 16624812032}}}};
  write_file(dir / "run.json", info.dump(2));
  write_file(dir / "config.yaml", "run: {name: quickstart, seed: 42}\nmodel: {arch: qwen3}\nprecision: {weights: " +
                                      p.weights + ", recipe: " + p.recipe + "}\n");
  const Curve curve = curve_of(p, options.steps);
  std::mt19937 random(seed_of(p) + 1);
  std::normal_distribution<double> normal;
  std::string lines;
  const int upto = ended ? options.steps : options.steps / 2,
            every = std::max(1, options.steps / std::max(1, options.quant_steps));
  for (int s = 1; s <= upto; ++s) {
    const size_t i = static_cast<size_t>(s - 1);
    const double speed = kTokensAStep / (seconds_at(p, 1)) * (1 + 0.012 * normal(random));
    const Json line = {{"step", s},
                       {"tokens", kTokensAStep * s},
                       {"seconds", seconds_at(p, s)},
                       {"loss", curve.loss[i]},
                       {"grad_norm", curve.grad[i]},
                       {"lr", learning_rate(s, options.steps)},
                       {"tokens_per_s", speed},
                       {"mfu", speed * 21.1e6 / 412.6e9}};
    lines += line.dump() + "\n";
    if (s % std::max(1, options.steps / 6) == 0)
      lines += Json{{"step", s},
                    {"tokens", kTokensAStep * s},
                    {"seconds", seconds_at(p, s)},
                    {"eval_loss", curve.loss[i] + 0.04}}
                   .dump() +
               "\n";
    if (s % every == 0 && emulated(p))
      lines += Json{{"step", s}, {"quantization", quantization_at(p, static_cast<double>(s) / options.steps, random)}}
                   .dump() +
               "\n";
  }
  write_file(dir / "metrics.jsonl", lines);
  if (ended) write_file(dir / "result.json", result_of(p, options).dump(2));
}

void write_compare(const fs::path& dir, const SyntheticOptions& options) {
  Json rows = Json::array();
  int index = 0;
  double base[2] = {0, 0};
  for (const Precision& p : twenty_rows()) {
    ++index;
    const std::string name = p.weights + "-" + p.recipe + (emulated(p) ? "-" + p.scope : "");
    const std::string folder = fmt::format("rows/{:02}-{}", index, name);
    Json row = {{"name", name}, {"weights", p.weights}, {"recipe", p.recipe}, {"scope", p.scope}, {"dir", folder}};
    if (index <= options.ended) {
      const Json result = result_of(p, options);
      for (const char* key : {"loss", "eval_loss", "tokens_per_s", "mfu", "nanogpt_legacy_v1", "combined_formula_v2",
                              "component_summation_v2025", "memory_pct", "path", "seconds"})
        row[key] = result[key];
      double& baseline = base[p.weights == "bf16"];
      if (!emulated(p)) baseline = result["loss"].get<double>();
      row["delta_loss"] = result["loss"].get<double>() - baseline;
      row["loss_spread"] = options.spread ? Json(0.0011) : Json();
      const double loss = row["loss"].get<double>(), apart = emulated(p) ? 0.0012 : 0.0011;
      if (options.spread) row["losses"] = {loss - apart, loss, loss + apart};
    }
    if (index <= options.ended + 1) write_run(dir / folder, p, options, index <= options.ended);
    rows.push_back(row);
  }
  const Json compare = {{"version", "0.1.0"},
                        {"config", "configs/quickstart.yaml"},
                        {"machine", machine()},
                        {"data", text(options)},
                        {"model", model()},
                        {"seeds", options.spread ? Json{42, 43, 44} : Json{42}},
                        {"baseline", "bf16 recipe of the same weights"},
                        {"rows", rows}};
  write_file(dir / "compare.json", compare.dump(2));
}

}  // namespace mantissa::report::testing
