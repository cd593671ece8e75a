// mantissa bench gemm: the products of four models' linear layers in three passes, with and without an algorithm
// search.
#include <algorithm>
#include <cmath>

#include "app/bench/bench.h"
#include "app/bench/stage.h"
#include "base/text.h"
#include "base/units.h"
#include "model/step_floor.h"
#include "ops/gemm.h"

namespace mantissa {
namespace {

struct GemmShape {
  std::string name;
  int64_t m = 0, n = 0, k = 0;  // m 0: --tokens
};

std::vector<GemmShape> model_shapes() {
  return {{"Qwen3-1.7B qkv", 0, 4096, 2048},
          {"Qwen3-1.7B out", 0, 2048, 2048},
          {"Qwen3-1.7B up", 0, 12288, 2048},
          {"Qwen3-1.7B down", 0, 2048, 6144},
          {"Qwen3-1.7B logits", 0, 151936, 2048},
          {"Qwen2.5-1.5B qkv", 0, 2048, 1536},
          {"Qwen2.5-1.5B out", 0, 1536, 1536},
          {"Qwen2.5-1.5B up", 0, 17920, 1536},
          {"Qwen2.5-1.5B down", 0, 1536, 8960},
          {"Qwen2.5-1.5B logits", 0, 151936, 1536},
          {"Llama-3-8B qkv", 0, 6144, 4096},
          {"Llama-3-8B out", 0, 4096, 4096},
          {"Llama-3-8B up", 0, 28672, 4096},
          {"Llama-3-8B down", 0, 4096, 14336},
          {"Llama-3-8B logits", 0, 128256, 4096},
          {"GPT-2 qkv", 0, 2304, 768},
          {"GPT-2 out", 0, 768, 768},
          {"GPT-2 up", 0, 3072, 768},
          {"GPT-2 down", 0, 768, 3072},
          {"GPT-2 logits", 0, 50304, 768}};
}

enum class GemmPass { kFprop, kDgrad, kWgrad };
constexpr const char* kPassNames[] = {"fprop", "dgrad", "wgrad"};

struct GemmOptions : BenchOptions {
  std::vector<std::string> shapes;
  std::string only, dtype = "bf16", grads = "bf16";
  int64_t tokens = 0;
};

// y = x wᵀ, dx = dy w, dw = dyᵀ x of one layer: the left, the right side and the result of one of them.
struct Problem {
  GemmPass pass;
  GemmShape shape;
  DType dtype, out;

  Shape left() const { return pass == GemmPass::kFprop ? Shape{shape.m, shape.k} : Shape{shape.m, shape.n}; }
  Shape right() const { return pass == GemmPass::kWgrad ? Shape{shape.m, shape.k} : Shape{shape.n, shape.k}; }
  Shape result() const {
    return pass == GemmPass::kFprop   ? Shape{shape.m, shape.n}
           : pass == GemmPass::kDgrad ? Shape{shape.m, shape.k}
                                      : Shape{shape.n, shape.k};
  }
  int64_t contraction() const {
    return pass == GemmPass::kFprop ? shape.k : pass == GemmPass::kDgrad ? shape.n : shape.m;
  }
  GemmDesc desc(ConstTensor a, ConstTensor b, Tensor c) const {
    return {.a = GemmSide::plain(a, pass == GemmPass::kWgrad),
            .b = GemmSide::plain(b, pass != GemmPass::kFprop),
            .c = c,
            .bias = {}};
  }
  double flops() const {
    return 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  }
  double bytes() const {
    return static_cast<double>(bytes_of(dtype, left().count()) + bytes_of(dtype, right().count()) +
                               bytes_of(out, result().count()));
  }
};

constexpr uint64_t kLeftSeed = 11, kRightSeed = 22;

// ‖found - expected‖ / ‖expected‖ over elements spread over the result; sums in double.
double sample_error(BenchStage& stage, const Problem& p, Tensor result) {
  constexpr int64_t kSamples = 24;
  const int64_t rows = result.dim(0), cols = result.dim(1), length = p.contraction();
  const bool left_along = p.pass == GemmPass::kWgrad, right_along = p.pass != GemmPass::kFprop;
  double difference = 0, norm = 0;
  for (int64_t s = 0; s < kSamples; ++s) {
    const int64_t i = s == 0 ? 0 : s * (rows - 1) / (kSamples - 1), j = s == 0 ? 0 : (s * 7919 + 13) % cols;
    double sum = 0;
    for (int64_t c = 0; c < length; ++c)
      sum += stage.normal_at(p.dtype, kLeftSeed, left_along ? c * p.left()[1] + i : i * length + c) *
             stage.normal_at(p.dtype, kRightSeed, right_along ? c * p.right()[1] + j : j * length + c);
    const ConstTensor element(static_cast<const std::byte*>(result.data) + bytes_of(p.out, i * cols + j), p.out, {1});
    const double found = stage.read(element)[0];
    difference += std::isfinite(found) ? (found - sum) * (found - sum) : INFINITY;
    norm += sum * sum;
  }
  return std::sqrt(difference / norm);
}

// us of one product, on a stage that sees the memory of `sets`.
double time_product(BenchStage& timed, const std::vector<GemmDesc>& sets, double seconds) {
  const auto work = [&](int64_t i) { gemm(timed.exec(), sets[static_cast<size_t>(i) % sets.size()]); };
  work(0);  // a search happens here
  timed.synchronize();
  return time_repeats(timed, work, timed.device() ? 0.15 : 0.02, seconds).us;
}

bool parse(GemmOptions& o, const std::vector<std::string>& args) {
  o.seconds = 0.1;
  CommandLine command(
      "Products of linear layers in three passes, checked, then timed with and without an algorithm search.",
      "bench gemm");
  add_bench_flags(command, o);
  command
      .option("--shapes", o.shapes,
              "MxNxK of layers y[M,N] = x[M,K] w[N,K]^T, separated by commas, instead of the models'")
      .comma_separated();
  command.option("--tokens", o.tokens, "M of the models' shapes (16384; CPU: 512)").within(1, 1 << 20);
  command.option("--only", o.only, "shapes whose name holds this text");
  command.option("--dtype", o.dtype, "bf16 or fp32").one_of({"bf16", "fp32"}).show_default();
  command.option("--grads", o.grads, "dtype of wgrad's result: bf16 or fp32").one_of({"bf16", "fp32"}).show_default();
  return command.parse(args);
}

std::vector<GemmShape> chosen_shapes(const GemmOptions& o) {
  std::vector<GemmShape> shapes;
  for (const std::string& text : o.shapes) {
    const std::vector<std::string> parts = split(text, 'x');
    GemmShape shape{.name = text};
    if (parts.size() != 3 || !parse_int(parts[0], shape.m) || !parse_int(parts[1], shape.n) ||
        !parse_int(parts[2], shape.k) || shape.m < 1 || shape.n < 1 || shape.k < 1)
      fail(Exit::kUsage, "--shapes: {}: expected MxNxK, as in 16384x4096x2048", printable(text));
    shapes.push_back(shape);
  }
  if (o.shapes.empty())
    for (GemmShape shape : model_shapes()) {
      shape.m = o.tokens;
      if (shape.name.find(o.only) != std::string::npos) shapes.push_back(shape);
    }
  if (shapes.empty()) fail(Exit::kUsage, "--only: {}: no shape's name holds it", printable(o.only));
  return shapes;
}

}  // namespace

int bench_gemm(const std::vector<std::string>& args) {
  GemmOptions o;
  if (!parse(o, args)) return 0;
  const DType dtype = o.dtype == "fp32" ? DType::kF32 : DType::kBF16;
  const ChosenDevice chosen = choose_device(o.device, {dtype == DType::kF32 ? "fp32" : "bf16"});
  BenchStage stage(chosen.gpu.get());
  // The same GPU once more, taking the library's first choice: both see the same memory.
  ChosenDevice unsearched;
  if (chosen.gpu && !o.device.deterministic) {
    DeviceConfig plain = o.device;
    plain.search = false;
    unsearched = choose_device(plain, {});
  }
  BenchStage first_choice(unsearched.gpu.get());
  for (BenchStage* s : {&stage, &first_choice}) s->reserve_scratch(kGemmScratchBytes);
  if (o.tokens == 0) o.tokens = chosen.gpu ? 16384 : 512;
  const double peak = chosen.gpu ? gpu_peak(*chosen.gpu).gflops / 1e3 : 0;
  const Yardstick yardstick;
  fmt::print("device    {}\n", chosen.text);
  if (chosen.gpu) fmt::print("state     {}\n", state_text(chosen.gpu->state()));
  fmt::print("dtype     {}, wgrad into {} · {}\n\n", o.dtype, dtype == DType::kF32 ? "fp32" : o.grads,
             chosen.gpu
                 ? fmt::format("peak {:.1f} TFLOP/s, dense BF16 · yardstick: one H200's rates of docs/bench.md", peak)
                 : "no peak known");
  fmt::print("{:<20} {:<6} {:<20} {:>8} {:>9} {:>8} {:>7} {:>7} {:>9}  {}\n", "layer", "pass", "M x N x K", "error",
             "us", "TFLOP/s", "% peak", "% yard", "unsearched", "algorithm");
  nlohmann::json rows = nlohmann::json::array();
  int failures = 0;
  for (const GemmShape& shape : chosen_shapes(o))
    for (const GemmPass pass : {GemmPass::kFprop, GemmPass::kDgrad, GemmPass::kWgrad}) {
      const bool full = dtype == DType::kF32 || (pass == GemmPass::kWgrad && o.grads == "fp32");
      const Problem p{pass, shape, dtype, full ? DType::kF32 : DType::kBF16};
      std::vector<GemmDesc> sets;
      do {
        const uint64_t set = 1000 * sets.size();
        const Tensor a = stage.normal(dtype, p.left(), kLeftSeed + set),
                     b = stage.normal(dtype, p.right(), kRightSeed + set);
        sets.push_back(p.desc(a, b, stage.zeros(p.out, p.result())));
      } while (sets.size() < kMaxSets && p.bytes() * static_cast<double>(sets.size()) < kCaches);
      gemm(stage.exec(), sets.front());
      stage.synchronize();
      const double error = sample_error(stage, p, sets.front().c), bound = p.out == DType::kF32 ? 1e-4 : 4e-3;
      const char* name = kPassNames[static_cast<int>(pass)];
      const std::string sizes = fmt::format("{} x {} x {}", shape.m, shape.n, shape.k);
      if (!(error <= bound)) {
        ++failures;
        fmt::print("{:<20} {:<6} {:<20} {:>8.1e} FAILED: above {:.1e}; not timed\n", shape.name, name, sizes, error,
                   bound);
        stage.clear();
        continue;
      }
      double us = time_product(stage, sets, o.seconds), plain_us = 0;
      if (unsearched.gpu) {  // there and back: a drift of the clock meets both alike
        plain_us = (time_product(first_choice, sets, o.seconds) + time_product(first_choice, sets, o.seconds)) / 2;
        us = (us + time_product(stage, sets, o.seconds)) / 2;
      }
      const std::string taken = explain_gemm(stage.exec(), sets.front()).taken;
      const double rate = p.flops() / us / 1e6, yard = yardstick.gemm_tflops(shape.n, shape.k);
      nlohmann::json row = {{"layer", shape.name}, {"pass", name},   {"m", shape.m}, {"n", shape.n},
                            {"k", shape.k},        {"error", error}, {"us", us},     {"tflops", rate},
                            {"algorithm", taken}};
      std::string first = "";
      if (unsearched.gpu) {
        const double plain = p.flops() / plain_us / 1e6;
        first = fmt::format("{:.0f}", plain);
        row["unsearched_tflops"] = plain;
      }
      if (chosen.gpu) row["peak_share"] = rate / peak, row["yardstick_share"] = rate / yard;
      fmt::print("{:<20} {:<6} {:<20} {:>8.1e} {:>9.1f} {:>8.{}f} {:>7} {:>7} {:>9}  {}\n", shape.name, name, sizes,
                 error, us, rate, rate < 10 ? 3 : 0, chosen.gpu ? percent_text(rate / peak) : "",
                 chosen.gpu && dtype == DType::kBF16 ? percent_text(rate / yard) : "", first, taken);
      std::fflush(stdout);
      rows.push_back(row);
      stage.clear();
    }
  nlohmann::json figures = bench_head(chosen, "gemm");
  figures["dtype"] = o.dtype;
  figures["rows"] = rows;
  if (chosen.gpu) {
    figures["peak_tflops"] = peak;
    figures["state"] = state_json(chosen.gpu->state());
    fmt::print("\nstate     {}\n", state_text(chosen.gpu->state()));
  }
  write_bench_json(o.json, figures);
  if (failures > 0) fail(Exit::kInternal, "bench gemm: {} products are wrong", failures);
  return 0;
}

}  // namespace mantissa
