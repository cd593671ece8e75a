// Time and bytes a second of the memory-bound ops at the shapes of a 6-layer model: hidden 256, intermediate 768,
// vocabulary 256, and of a large vocabulary. Bytes are those an op must read and write once. Data is random.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/parallel.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/loss.h"
#include "ops/norm.h"

namespace mantissa {
namespace {

constexpr int64_t kHidden = 256, kIntermediate = 768, kVocab = 256;

// A tensor and its memory, filled with values of a normal distribution.
class Buffer {
 public:
  Buffer(DType dtype, Shape shape, float scale = 1)
      : bytes_(static_cast<size_t>(bytes_of(dtype, shape.count()))), tensor_(bytes_.data(), dtype, shape) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> period(4099);
    for (float& x : period) x = normal(generator);
    for (int64_t i = 0; i < shape.count(); ++i) {
      const float x = period[static_cast<size_t>(i) % period.size()];
      if (dtype == DType::kBF16)
        tensor_.as<bf16>()[i] = to_bf16(x);
      else
        tensor_.as<float>()[i] = x;
    }
  }
  operator Tensor() const { return tensor_; }       // NOLINT: implicit by design
  operator ConstTensor() const { return tensor_; }  // NOLINT: implicit by design
  Operand operand() const { return {.high = tensor_, .rowwise = {}, .columnwise = {}}; }
  int64_t bytes() const { return tensor_.bytes(); }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

std::vector<int32_t> random_ids(int64_t n, int64_t limit) {
  std::mt19937 generator(2);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint32_t>(limit));
  return ids;
}

// range(0) = 1: BF16, else F32.
DType dtype_of(const benchmark::State& state) { return state.range(0) ? DType::kBF16 : DType::kF32; }

void finish(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["threads"] = max_threads();
  state.SetLabel(name_of(dtype_of(state)));
}

template <bool kLayerNorm>
void norm_forward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  const DType type = dtype_of(state);
  Buffer x(type, {t, kHidden}), r(type, {t, kHidden}), h(type, {t, kHidden}), y(type, {t, kHidden});
  Buffer weight(type, {kHidden}), bias(type, {kHidden}), mean(DType::kF32, {t}), rstd(DType::kF32, {t});
  Operand out = y.operand();
  for (auto _ : state) {
    if constexpr (kLayerNorm)
      add_layer_norm_fwd(exec, out, mean, rstd, h, x, r, weight, bias, 1e-5f);
    else
      add_rms_norm_fwd(exec, out, rstd, h, x, r, weight, 1e-5f);
  }
  finish(state, 4 * x.bytes());
}

template <bool kLayerNorm>
void norm_backward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  const DType type = dtype_of(state);
  Buffer x(type, {t, kHidden}), dy(type, {t, kHidden}), dx(type, {t, kHidden}), past(type, {t, kHidden});
  Buffer weight(type, {kHidden}), mean(DType::kF32, {t}), rstd(DType::kF32, {t});
  Buffer dweight(DType::kF32, {kHidden}), dbias(DType::kF32, {kHidden});
  for (auto _ : state) {
    if constexpr (kLayerNorm)
      layer_norm_bwd(exec, dx, dweight, dbias, dy, x, weight, mean, rstd, past);
    else
      rms_norm_bwd(exec, dx, dweight, dy, x, weight, rstd, past);
  }
  finish(state, 4 * x.bytes());
}

void swiglu_forward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  Buffer x(dtype_of(state), {t, 2 * kIntermediate}), y(dtype_of(state), {t, kIntermediate});
  Operand out = y.operand();
  for (auto _ : state) swiglu_fwd(exec, out, x);
  finish(state, x.bytes() + y.bytes());
}

void swiglu_backward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  Buffer x(dtype_of(state), {t, 2 * kIntermediate}), dx(dtype_of(state), {t, 2 * kIntermediate});
  Buffer dy(dtype_of(state), {t, kIntermediate});
  Operand out = dx.operand();
  for (auto _ : state) swiglu_bwd(exec, out, dy, x);
  finish(state, x.bytes() + dx.bytes() + dy.bytes());
}

void gelu_forward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  Buffer x(dtype_of(state), {t, 4 * kHidden}), y(dtype_of(state), {t, 4 * kHidden});
  Operand out = y.operand();
  for (auto _ : state) gelu_fwd(exec, out, x);
  finish(state, x.bytes() + y.bytes());
}

void gelu_backward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  Buffer x(dtype_of(state), {t, 4 * kHidden}), dx(dtype_of(state), {t, 4 * kHidden}),
      dy(dtype_of(state), {t, 4 * kHidden});
  Operand out = dx.operand();
  for (auto _ : state) gelu_bwd(exec, out, dy, x);
  finish(state, 3 * x.bytes());
}

void embedding_forward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  const std::vector<int32_t> ids = random_ids(t, kVocab);
  Buffer table(dtype_of(state), {kVocab, kHidden}), y(dtype_of(state), {t, kHidden});
  for (auto _ : state) embedding_fwd(exec, y, {ids.data(), DType::kI32, {t}}, table, {}, {});
  finish(state, table.bytes() + y.bytes());
}

void embedding_backward(benchmark::State& state) {
  Exec exec;
  const int64_t t = state.range(1);
  const std::vector<int32_t> ids = random_ids(t, kVocab);
  Buffer dtable(DType::kF32, {kVocab, kHidden}), dy(dtype_of(state), {t, kHidden});
  for (auto _ : state) embedding_bwd(exec, dtable, {}, dy, {ids.data(), DType::kI32, {t}}, {});
  finish(state, 2 * dtable.bytes() + dy.bytes());
}

// Rows, vocabulary; the gradient overwrites the logits.
void cross_entropy_step(benchmark::State& state) {
  Exec exec;
  const int64_t rows = state.range(1), vocab = state.range(2);
  const std::vector<int32_t> labels = random_ids(rows, vocab);
  Buffer logits(dtype_of(state), {rows, vocab});
  for (auto _ : state) {
    LossSums sums;
    const StepState step{.grad_scale = 1, .z_weight = 1e-4f};
    cross_entropy(exec, &sums, logits, vocab, {labels.data(), DType::kI32, {rows}}, &step);
    benchmark::DoNotOptimize(sums);
  }
  finish(state, 2 * logits.bytes());
}

void residual_add(benchmark::State& state) {
  Exec exec;
  const Shape shape{state.range(1), kHidden};
  Buffer a(dtype_of(state), shape), b(dtype_of(state), shape), y(dtype_of(state), shape);
  for (auto _ : state) add(exec, y, a, b);
  finish(state, 3 * a.bytes());
}

// From the dtype into the other one.
void cast_parameters(benchmark::State& state) {
  Exec exec;
  const Shape shape{state.range(1)};
  Buffer x(dtype_of(state), shape), y(state.range(0) ? DType::kF32 : DType::kBF16, shape);
  for (auto _ : state) cast(exec, y, x);
  finish(state, x.bytes() + y.bytes());
}

void bias_backward(benchmark::State& state) {
  Exec exec;
  Buffer dy(dtype_of(state), {state.range(1), kIntermediate}), db(DType::kF32, {kIntermediate});
  for (auto _ : state) bias_bwd(exec, db, dy);
  finish(state, dy.bytes());
}

void gradient_norm(benchmark::State& state) {
  Exec exec;
  Buffer x(dtype_of(state), {state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(exec, x));
  finish(state, x.bytes());
}

void nonfinite_scan(benchmark::State& state) {
  Exec exec;
  Buffer x(dtype_of(state), {state.range(1)});
  for (auto _ : state) benchmark::DoNotOptimize(first_nonfinite(exec, x));
  finish(state, x.bytes());
}

// F32: master weight, BF16 copy and FP32 states; BF16: everything BF16. range(2): stochastic rounding.
void adamw_step(benchmark::State& state) {
  Exec exec;
  const Shape shape{state.range(1)};
  const bool master = state.range(0) == 0;
  Buffer param(dtype_of(state), shape), copy(DType::kBF16, shape), grad(dtype_of(state), shape);
  Buffer m(dtype_of(state), shape), v(dtype_of(state), shape, 0);
  AdamwStep step{.lr = 1e-4f, .weight_decay = 0.1f};
  for (auto _ : state) {
    adamw(exec, param, master ? Tensor(copy) : Tensor(), grad, m, v, step, state.range(2) != 0, 1);
    ++step.t;
  }
  finish(state, 7 * param.bytes() + (master ? copy.bytes() : 0));
}

void token_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{0, 1}, {1024, 4096}})->ArgNames({"bf16", "T"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void parameter_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{0, 1}, {4 << 20}})->ArgNames({"bf16", "n"})->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK(norm_forward<false>)->Name("add_rms_norm_fwd")->Apply(token_shapes);
BENCHMARK(norm_backward<false>)->Name("rms_norm_bwd")->Apply(token_shapes);
BENCHMARK(norm_forward<true>)->Name("add_layer_norm_fwd")->Apply(token_shapes);
BENCHMARK(norm_backward<true>)->Name("layer_norm_bwd")->Apply(token_shapes);
BENCHMARK(swiglu_forward)->Name("swiglu_fwd")->Apply(token_shapes);
BENCHMARK(swiglu_backward)->Name("swiglu_bwd")->Apply(token_shapes);
BENCHMARK(gelu_forward)->Name("gelu_fwd")->Apply(token_shapes);
BENCHMARK(gelu_backward)->Name("gelu_bwd")->Apply(token_shapes);
BENCHMARK(embedding_forward)->Name("embedding_fwd")->Apply(token_shapes);
BENCHMARK(embedding_backward)->Name("embedding_bwd")->Apply(token_shapes);
BENCHMARK(cross_entropy_step)
    ->Name("cross_entropy")
    ->ArgsProduct({{0, 1}, {1024}, {256}})
    ->ArgsProduct({{0, 1}, {4096}, {256}})
    ->ArgsProduct({{0, 1}, {128}, {151936}})
    ->ArgNames({"bf16", "R", "V"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(residual_add)->Name("add")->Apply(token_shapes);
BENCHMARK(bias_backward)->Name("bias_bwd")->Apply(token_shapes);
BENCHMARK(cast_parameters)->Name("cast")->Apply(parameter_shapes);
BENCHMARK(gradient_norm)->Name("sum_of_squares")->Apply(parameter_shapes);
BENCHMARK(nonfinite_scan)->Name("first_nonfinite")->Apply(parameter_shapes);
BENCHMARK(adamw_step)
    ->Name("adamw")
    ->Args({0, 4 << 20, 0})
    ->Args({1, 4 << 20, 0})
    ->Args({1, 4 << 20, 1})
    ->ArgNames({"bf16", "n", "stochastic"})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mantissa
