// Attention, RoPE and QK-norm of a training step. Items are tokens; GFLOP/s count the causal triangle alone: forward 4
// D FLOPs a pair of tokens and head, backward 2.5 times that.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ops/attention.h"

namespace mantissa {
namespace {

const HeadLayout kLayout{4, 2, 64};
constexpr int64_t kTokens = 4096;

std::vector<int32_t> documents(int kind) {
  // 0: rows of 512; 1: documents of 128; 2: documents of 1 to 1000 tokens cut at rows of 512.
  std::vector<int32_t> offsets{0};
  std::mt19937 generator(7);
  while (offsets.back() < kTokens) {
    const int row_left = 512 - offsets.back() % 512;
    const int length = kind == 0 ? 512 : kind == 1 ? 128 : static_cast<int>(generator() % 1000 + 1);
    offsets.push_back(offsets.back() + std::min(length, row_left));
  }
  return offsets;
}

template <class E>
std::vector<E> random_values(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<E> values(static_cast<size_t>(n));
  for (E& v : values) v = from_float<E>(normal(generator));
  return values;
}

template <class E, bool backward>
void attention(benchmark::State& state) {
  const DType dtype = sizeof(E) == 2 ? DType::kBF16 : DType::kF32;
  Exec exec;
  std::vector<int32_t> offsets = documents(static_cast<int>(state.range(0)));
  const int64_t cols = kLayout.qkv_cols(), out_cols = kLayout.heads * kLayout.head_dim;
  auto qkv = random_values<E>(kTokens * cols, 1), dout = random_values<E>(kTokens * out_cols, 2);
  std::vector<E> out(dout.size()), dqkv(qkv.size());
  std::vector<float> lse(static_cast<size_t>(kLayout.heads * kTokens));
  const Tensor tqkv(qkv.data(), dtype, {kTokens, cols}), tdqkv(dqkv.data(), dtype, tqkv.shape);
  const Tensor tout(out.data(), dtype, {kTokens, out_cols}), tdout(dout.data(), dtype, tout.shape);
  const Tensor tlse(lse.data(), DType::kF32, {kLayout.heads, kTokens});
  const Segments segments{.offsets = {offsets.data(), DType::kI32, {static_cast<int64_t>(offsets.size())}}};
  const float scale = 1.0f / std::sqrt(static_cast<float>(kLayout.head_dim));
  attention_fwd(exec, tout, tlse, tqkv, segments, kLayout, scale);
  for (auto _ : state) {
    if constexpr (backward)
      attention_bwd(exec, tdqkv, tdout, tqkv, tout, tlse, segments, kLayout, scale);
    else
      attention_fwd(exec, tout, tlse, tqkv, segments, kLayout, scale);
  }
  double pairs = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const double n = offsets[i + 1] - offsets[i];
    pairs += n * (n + 1) / 2;
  }
  const double flops = pairs * static_cast<double>(kLayout.heads * kLayout.head_dim) * (backward ? 10 : 4);
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(runs * flops * 1e-9, benchmark::Counter::kIsRate);
  state.counters["us/token"] =
      benchmark::Counter(runs * kTokens * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

enum class RopeOp { kRopeFwd, kRopeBwd, kNormFwd, kNormBwd };

template <RopeOp op>
void rope(benchmark::State& state) {
  Exec exec;
  const int64_t cols = kLayout.qkv_cols(), dim = kLayout.head_dim, rotated = kLayout.heads + kLayout.kv_heads;
  auto x = random_values<bf16>(kTokens * cols, 1), dy = random_values<bf16>(kTokens * cols, 2);
  auto weight = random_values<bf16>(dim, 3);
  auto cos_sin = random_values<float>(512 * dim, 4);
  std::vector<bf16> y(x.size());
  std::vector<float> rstd(static_cast<size_t>(kTokens * rotated), 1.0f), dweight(static_cast<size_t>(dim));
  std::vector<int32_t> positions(kTokens);
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t % 512);
  const Tensor tx(x.data(), DType::kBF16, {kTokens, cols}), ty(y.data(), DType::kBF16, tx.shape);
  const Tensor tdy(dy.data(), DType::kBF16, tx.shape), tr(rstd.data(), DType::kF32, {kTokens, rotated});
  const ConstTensor tw(weight.data(), DType::kBF16, {dim}), table(cos_sin.data(), DType::kF32, {512, dim});
  const ConstTensor tp(positions.data(), DType::kI32, {kTokens});
  const Tensor tdw(dweight.data(), DType::kF32, {dim});
  for (auto _ : state) {
    if constexpr (op == RopeOp::kRopeFwd) rope_fwd(exec, ty, tx, table, tp, kLayout);
    if constexpr (op == RopeOp::kRopeBwd) rope_bwd(exec, ty, tdy, table, tp, kLayout);
    if constexpr (op == RopeOp::kNormFwd) qk_norm_rope_fwd(exec, ty, tr, tx, tw, tw, table, tp, kLayout, 1e-6f);
    if constexpr (op == RopeOp::kNormBwd) qk_norm_rope_bwd(exec, ty, tdw, tdw, tdy, tx, tr, tw, tw, table, tp, kLayout);
  }
  const auto runs = static_cast<double>(state.iterations());
  const double passes = op == RopeOp::kNormBwd ? 3 : 2;
  state.counters["GB/s"] =
      benchmark::Counter(runs * passes * static_cast<double>(tx.bytes()) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["us/token"] =
      benchmark::Counter(runs * kTokens * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void document_kinds(benchmark::internal::Benchmark* b) {
  b->ArgName("documents")->Arg(0)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(attention<bf16, false>)->Name("attention_fwd/bf16")->Apply(document_kinds);
BENCHMARK(attention<bf16, true>)->Name("attention_bwd/bf16")->Apply(document_kinds);
BENCHMARK(attention<float, false>)->Name("attention_fwd/f32")->Apply(document_kinds);
BENCHMARK(attention<float, true>)->Name("attention_bwd/f32")->Apply(document_kinds);
BENCHMARK(rope<RopeOp::kRopeFwd>)->Name("rope_fwd/bf16")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(rope<RopeOp::kRopeBwd>)->Name("rope_bwd/bf16")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(rope<RopeOp::kNormFwd>)->Name("qk_norm_rope_fwd/bf16")->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(rope<RopeOp::kNormBwd>)->Name("qk_norm_rope_bwd/bf16")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mantissa
