// gemm_rates: GFLOP/s of every GEMM candidate that this machine has, over the three products of a linear layer and all
// formats. Each line is verified on one output element, then timed: the best of several windows, operands rotated
// through copies so that they come from memory as in a step.
//   gemm_rates [tokens [seconds a figure [candidate]]]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/gemm/decode.h"
#include "ops/cpu_gemm/candidates.h"
#include "ops/cpu_gemm/cpu_features.h"
#include "ops/gemm_problem.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;

struct Format {
  const char* name;
  DType element;
  QuantFormat a, b;  // unused for plain elements
};

constexpr QuantFormat kTensorE4m3{DType::kE4M3, ScaleRule::kGiven, Blocking::kTensor, 0};
constexpr QuantFormat kRow128{DType::kE4M3, ScaleRule::kCurrent, Blocking::kRow, 128};
constexpr QuantFormat kTile128{DType::kE4M3, ScaleRule::kCurrent, Blocking::kTile, 128};
constexpr QuantFormat kRow128Pow2{DType::kE4M3, ScaleRule::kCurrentPow2, Blocking::kRow, 128};
constexpr QuantFormat kTile128Pow2{DType::kE4M3, ScaleRule::kCurrentPow2, Blocking::kTile, 128};
constexpr QuantFormat kMx{DType::kE4M3, ScaleRule::kE8M0, Blocking::kRow, 32};
constexpr QuantFormat kNv{DType::kE2M1, ScaleRule::kNvfp4, Blocking::kRow, 16};
constexpr QuantFormat kNvTile{DType::kE2M1, ScaleRule::kNvfp4, Blocking::kTile, 16};

const Format kFormats[] = {{"bf16", DType::kBF16, {}, {}},
                           {"f32", DType::kF32, {}, {}},
                           {"fp8-tensor", DType::kE4M3, kTensorE4m3, kTensorE4m3},
                           {"fp8-block-f32", DType::kE4M3, kRow128, kTile128},
                           {"fp8-block-pow2", DType::kE4M3, kRow128Pow2, kTile128Pow2},
                           {"mxfp8", DType::kE4M3, kMx, kMx},
                           {"nvfp4", DType::kE2M1, kNv, kNvTile}};

// One side in memory: random finite values or codes, scales near 1.
struct Side {
  std::vector<uint8_t> data, scales;
  Quantized q;
  float amax = 2688;
  GemmSide view;

  Side(std::mt19937& random, const Format& format, const QuantFormat& quant, int64_t outer, int64_t k,
       bool transposed) {
    const int64_t rows = transposed ? k : outer, cols = transposed ? outer : k;
    data.resize(static_cast<size_t>(bytes_of(format.element, rows * cols)));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float x = normal(random);
      if (format.element == DType::kF32) reinterpret_cast<float*>(data.data())[i] = x;
      if (format.element == DType::kBF16) reinterpret_cast<bf16*>(data.data())[i] = to_bf16(x);
      if (format.element == DType::kE4M3) data[static_cast<size_t>(i)] = encode_e4m3(100 * x);
      if (format.element == DType::kE2M1)
        data[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(encode_e2m1(3 * x) << (i % 2 * 4));
    }
    const ConstTensor codes{data.data(), format.element, {rows, cols}};
    if (quant == QuantFormat{}) {
      view = GemmSide::plain(codes, transposed);
      return;
    }
    const bool tensor = quant.blocking == Blocking::kTensor;
    const int64_t grid_rows = tensor ? 1 : quant.blocking == Blocking::kTile ? ceil_div(rows, quant.block) : rows;
    const int64_t grid_cols = tensor ? 1 : ceil_div(cols, quant.block);
    const DType scale = quant.rule == ScaleRule::kE8M0    ? DType::kE8M0
                        : quant.rule == ScaleRule::kNvfp4 ? DType::kE4M3
                                                          : DType::kF32;
    scales.resize(static_cast<size_t>(bytes_of(scale, grid_rows * grid_cols)));
    for (int64_t i = 0; i < grid_rows * grid_cols; ++i) {
      const int exponent = static_cast<int>(random() % 5) - 2;
      if (scale == DType::kF32) reinterpret_cast<float*>(scales.data())[i] = std::ldexp(1.0f, exponent);
      if (scale == DType::kE8M0) scales[static_cast<size_t>(i)] = static_cast<uint8_t>(127 + exponent);
      if (scale == DType::kE4M3) scales[static_cast<size_t>(i)] = encode_e4m3(std::ldexp(1.0f, exponent));
    }
    q = {quant,
         {data.data(), format.element, {rows, cols}},
         {scales.data(), scale, {grid_rows, grid_cols}},
         &amax,
         nullptr};
    if (tensor) q.scale_inv.shape = {1};
    view = GemmSide::quantized(q, transposed);
  }
};

// c[0, 0] of the product in double, without tensor scales of NVFP4.
double first_element(const GemmProblem& p) {
  double sum = 0;
  for (int64_t i = 0; i < p.k; ++i) {
    const auto value = [i](const GemmOperand& x) {
      const int64_t row = x.transposed ? i : 0, col = x.transposed ? 0 : i;
      return static_cast<double>(element_at(x.data, x.dtype, row * x.stride + col)) * scale_at(x, row, col);
    };
    sum += value(p.a) * value(p.b);
  }
  return sum * p.alpha;
}

struct Work {
  const char* pass;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool accumulate;
};

double rate(Exec& exec, const GemmCandidate& candidate, const std::vector<GemmProblem>& copies, double seconds) {
  const GemmProblem& p = copies[0];
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  double best = 0, spent = 0;
  size_t next = 0;
  candidate.run(exec, candidate.engine, copies[0]);
  do {
    const Clock::time_point start = Clock::now();
    double elapsed = 0;
    int runs = 0;
    do {
      candidate.run(exec, candidate.engine, copies[next++ % copies.size()]);
      ++runs;
      elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < 2e-3);
    best = std::max(best, flops * runs / elapsed);
    spent += elapsed;
  } while (spent < seconds);
  return best * 1e-9;
}

int run(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 1024;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.1;
  const std::string only = argc > 3 ? argv[3] : "";
  Exec exec;
  std::printf("instruction set %s, %d threads, %lld tokens; amx: %s\n", name_of(exec.isa()), exec.threads(),
              static_cast<long long>(tokens), cpu_features().amx_bf16 ? "yes" : cpu_features().amx_absence);
  std::printf("%-11s %-15s %6s %6s %8s %8s %8s   GFLOP/s\n", "candidate", "format", "N", "K", "fprop", "dgrad",
              "wgrad");
  const int64_t layers[][2] = {{256, 256}, {512, 256}, {1536, 256}, {256, 768}, {1024, 1024}, {1536, 1536}};
  int wrong = 0;
  for (const Format& format : kFormats)
    for (const GemmCandidate& candidate : gemm_candidates()) {
      if (*candidate.missing(exec) || (!only.empty() && only != candidate.name)) continue;
      for (const auto& layer : layers) {
        const int64_t n = layer[0], k = layer[1];
        const bool quantized = !(format.a == QuantFormat{});
        // Plain sides are read as they lie; quantized ones have a columnwise copy, weights in tiles serve both ways.
        const bool row_weight = quantized && format.b.blocking == Blocking::kRow;
        const Work works[] = {{"fprop", tokens, n, k, false, false, false},
                              {"dgrad", tokens, k, n, false, !row_weight, false},
                              {"wgrad", n, k, tokens, !quantized, !quantized, true}};
        std::printf("%-11s %-15s %6lld %6lld", candidate.name, format.name, static_cast<long long>(n),
                    static_cast<long long>(k));
        for (const Work& w : works) {
          std::mt19937 random(1);
          const QuantFormat& b_format = w.accumulate ? format.a : format.b;
          std::vector<std::unique_ptr<Side>> sides;
          std::vector<std::vector<float>> outs(2, std::vector<float>(static_cast<size_t>(w.m * w.n)));
          std::vector<GemmProblem> copies;
          for (auto& out : outs) {
            sides.push_back(std::make_unique<Side>(random, format, format.a, w.m, w.k, w.a_transposed));
            sides.push_back(std::make_unique<Side>(random, format, b_format, w.n, w.k, w.b_transposed));
            const DType c = w.accumulate || format.element == DType::kF32 ? DType::kF32 : DType::kBF16;
            copies.push_back(normalise({.a = sides[sides.size() - 2]->view,
                                        .b = sides.back()->view,
                                        .c = {out.data(), c, {w.m, w.n}},
                                        .bias = {},
                                        .beta = 0}));
          }
          if (*candidate.refuses(copies[0])) {
            std::printf(" %8s", "-");
            continue;
          }
          candidate.run(exec, candidate.engine, copies[0]);
          const double want = first_element(copies[0]), got = element_at(copies[0].c, copies[0].c_dtype, 0);
          const bool right = std::fabs(got - want) <=
                             0.01 * std::fabs(want) + 1e-2 * std::sqrt(static_cast<double>(w.k)) * copies[0].alpha;
          wrong += !right;
          for (GemmProblem& p : copies) p.accumulate = w.accumulate;
          std::printf(right ? " %8.0f" : " %7.0f!", rate(exec, candidate, copies, seconds));
          std::fflush(stdout);
        }
        std::printf("\n");
      }
    }
  if (wrong) std::printf("%d figures marked ! belong to wrong results\n", wrong);
  return wrong ? 1 : 0;
}

}  // namespace
}  // namespace mantissa

int main(int argc, char** argv) { return mantissa::run(argc, argv); }
