#include "app/bench/cases.h"

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "ops/activation.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace mantissa {
namespace {

struct Sizes {
  const char* name;
  int64_t hidden, intermediate, vocab;
  HeadLayout heads;
  int64_t sequence;
};
constexpr Sizes kQwen3{"Qwen3-1.7B", 2048, 6144, 151936, {16, 8, 128}, 4096};
constexpr Sizes kQwen25{"Qwen2.5-1.5B", 1536, 8960, 151936, {12, 2, 128}, 1024};
constexpr Sizes kLlama{"Llama-3-8B", 4096, 14336, 128256, {32, 8, 128}, 8192};
constexpr Sizes kGpt2{"GPT-2", 768, 3072, 50257, {12, 12, 64}, 1024};

// Relative errors: a BF16 result is off by 2^-9 at most where two sums differ in order, by more where the op rounds in
// between (attention's probabilities); FP32 sums of thousands of terms by 1e-5.
constexpr double kBf16 = 4e-3, kF32 = 2e-5, kAttention = 1.5e-2, kExact = 1e-7;
constexpr float kEps = 1e-6f;
constexpr DType kData = DType::kBF16;

double bytes_of_all(std::initializer_list<ConstTensor> tensors) {
  double bytes = 0;
  for (const ConstTensor& x : tensors) bytes += static_cast<double>(x.bytes());
  return bytes;
}

Operand high(Tensor x) {
  Operand operand;
  operand.high = x;
  return operand;
}

std::vector<int32_t> counting(int64_t tokens, int64_t period) {
  std::vector<int32_t> values(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) values[static_cast<size_t>(i)] = static_cast<int32_t>(i % period);
  return values;
}

std::string named(const Sizes& s, const std::string& shape) { return fmt::format("{} {}", s.name, shape); }

// --- norms

BenchCase rms_forward(const Sizes& s, bool residual) {
  return {residual ? "add_rms_norm_fwd" : "rms_norm_fwd", named(s, fmt::format("H {}", s.hidden)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Shape shape{t, s.hidden};
            const Tensor x = stage.normal(kData, shape, seed), r = stage.normal(kData, shape, seed + 1);
            const Tensor w = stage.normal(kData, {s.hidden}, seed + 2);
            const Tensor y = stage.zeros(kData, shape), h = stage.zeros(kData, shape);
            const Tensor rstd = stage.zeros(DType::kF32, {t});
            BenchRun run;
            run.outputs = {y, rstd};
            if (residual) run.outputs.push_back(h);
            run.bytes = residual ? bytes_of_all({x, r, w, y, h, rstd}) : bytes_of_all({x, w, y, rstd});
            run.run = [=](Exec& exec) {
              Operand out = high(y);
              if (residual)
                add_rms_norm_fwd(exec, out, rstd, h, x, r, w, kEps);
              else
                rms_norm_fwd(exec, out, rstd, x, w, kEps);
            };
            return run;
          }};
}

BenchCase rms_backward(const Sizes& s) {
  return {"rms_norm_bwd", named(s, fmt::format("H {}", s.hidden)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Shape shape{t, s.hidden};
            const Tensor dy = stage.normal(kData, shape, seed), x = stage.normal(kData, shape, seed + 1);
            const Tensor w = stage.normal(kData, {s.hidden}, seed + 2), past = stage.normal(kData, shape, seed + 3);
            const Tensor rstd = stage.positive(DType::kF32, {t}, seed + 4), dx = stage.zeros(kData, shape);
            const Tensor dw = stage.zeros(DType::kF32, {s.hidden});
            BenchRun run;
            run.outputs = {dx, dw};
            run.bytes = bytes_of_all({dy, x, w, past, rstd, dx, dw});
            run.scratch = row_reduction_scratch_bytes(t, s.hidden);
            run.run = [=](Exec& exec) { rms_norm_bwd(exec, dx, dw, dy, x, w, rstd, past); };
            return run;
          }};
}

BenchCase layer_forward(const Sizes& s, bool residual) {
  return {
      residual ? "add_layer_norm_fwd" : "layer_norm_fwd", named(s, fmt::format("H {}", s.hidden)), kBf16,
      [=](BenchStage& stage, int64_t t, uint64_t seed) {
        const Shape shape{t, s.hidden};
        const Tensor x = stage.normal(kData, shape, seed), r = stage.normal(kData, shape, seed + 1);
        const Tensor w = stage.normal(kData, {s.hidden}, seed + 2), b = stage.normal(kData, {s.hidden}, seed + 3);
        const Tensor y = stage.zeros(kData, shape), h = stage.zeros(kData, shape);
        const Tensor mean = stage.zeros(DType::kF32, {t}), rstd = stage.zeros(DType::kF32, {t});
        BenchRun run;
        run.outputs = {y, rstd};
        if (residual) run.outputs.push_back(h);
        run.bytes = residual ? bytes_of_all({x, r, w, b, y, h, mean, rstd}) : bytes_of_all({x, w, b, y, mean, rstd});
        run.run = [=](Exec& exec) {
          Operand out = high(y);
          if (residual)
            add_layer_norm_fwd(exec, out, mean, rstd, h, x, r, w, b, kEps);
          else
            layer_norm_fwd(exec, out, mean, rstd, x, w, b, kEps);
        };
        return run;
      }};
}

BenchCase layer_backward(const Sizes& s) {
  return {"layer_norm_bwd", named(s, fmt::format("H {}", s.hidden)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Shape shape{t, s.hidden};
            const Tensor dy = stage.normal(kData, shape, seed), x = stage.normal(kData, shape, seed + 1);
            const Tensor w = stage.normal(kData, {s.hidden}, seed + 2), past = stage.normal(kData, shape, seed + 3);
            const Tensor mean = stage.normal(DType::kF32, {t}, seed + 4);
            const Tensor rstd = stage.positive(DType::kF32, {t}, seed + 5), dx = stage.zeros(kData, shape);
            const Tensor dw = stage.zeros(DType::kF32, {s.hidden}), db = stage.zeros(DType::kF32, {s.hidden});
            BenchRun run;
            run.outputs = {dx, dw, db};
            run.bytes = bytes_of_all({dy, x, w, past, mean, rstd, dx, dw, db});
            run.scratch = row_reduction_scratch_bytes(t, s.hidden);
            run.run = [=](Exec& exec) { layer_norm_bwd(exec, dx, dw, db, dy, x, w, mean, rstd, past); };
            return run;
          }};
}

// --- activations

BenchCase activation(const Sizes& s, bool swiglu, bool backward) {
  const int64_t f = s.intermediate, width = swiglu ? 2 * f : f;
  return {std::string(swiglu ? "swiglu" : "gelu") + (backward ? "_bwd" : "_fwd"), named(s, fmt::format("F {}", f)),
          kBf16, [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor x = stage.normal(kData, {t, width}, seed);
            BenchRun run;
            if (!backward) {
              const Tensor y = stage.zeros(kData, {t, f});
              run.outputs = {y};
              run.bytes = bytes_of_all({x, y});
              run.run = [=](Exec& exec) {
                Operand out = high(y);
                swiglu ? swiglu_fwd(exec, out, x) : gelu_fwd(exec, out, x);
              };
              return run;
            }
            const Tensor dy = stage.normal(kData, {t, f}, seed + 1), dx = stage.zeros(kData, {t, width});
            run.outputs = {dx};
            run.bytes = bytes_of_all({x, dy, dx});
            run.run = [=](Exec& exec) {
              Operand out = high(dx);
              swiglu ? swiglu_bwd(exec, out, dy, x) : gelu_bwd(exec, out, dy, x);
            };
            return run;
          }};
}

// --- rotary embedding and attention

Tensor rope_table(BenchStage& stage, const Sizes& s) {
  const int64_t d = s.heads.head_dim;
  std::vector<float> table(static_cast<size_t>(s.sequence * d));
  for (int64_t p = 0; p < s.sequence; ++p)
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(1e6, -2.0 * static_cast<double>(i) / static_cast<double>(d));
      table[static_cast<size_t>(p * d + i)] = static_cast<float>(std::cos(angle));
      table[static_cast<size_t>(p * d + d / 2 + i)] = static_cast<float>(std::sin(angle));
    }
  return stage.upload(DType::kF32, {s.sequence, d}, table.data());
}

BenchCase rope(const Sizes& s, bool backward) {
  const HeadLayout l = s.heads;
  return {backward ? "rope_bwd" : "rope_fwd",
          named(s, fmt::format("{}/{} heads of {}, in place", l.heads, l.kv_heads, l.head_dim)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor x = stage.normal(kData, {t, l.qkv_cols()}, seed), table = rope_table(stage, s);
            const Tensor positions = stage.integers(counting(t, s.sequence));
            BenchRun run;
            run.outputs = {x};
            run.bytes = 2.0 * static_cast<double>(bytes_of(kData, t * (l.heads + l.kv_heads) * l.head_dim));
            run.run = [=](Exec& exec) {
              backward ? rope_bwd(exec, x, x, table, positions, l) : rope_fwd(exec, x, x, table, positions, l);
            };
            return run;
          }};
}

BenchCase qk_norm_rope(const Sizes& s, bool backward) {
  const HeadLayout l = s.heads;
  return {backward ? "qk_norm_rope_bwd" : "qk_norm_rope_fwd",
          named(s, fmt::format("{}/{} heads of {}", l.heads, l.kv_heads, l.head_dim)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const int64_t qk = l.heads + l.kv_heads;
            const Tensor x = stage.normal(kData, {t, l.qkv_cols()}, seed), table = rope_table(stage, s);
            const Tensor qw = stage.normal(kData, {l.head_dim}, seed + 1);
            const Tensor kw = stage.normal(kData, {l.head_dim}, seed + 2);
            const Tensor positions = stage.integers(counting(t, s.sequence));
            BenchRun run;
            if (!backward) {
              const Tensor y = stage.zeros(kData, x.shape), rstd = stage.zeros(DType::kF32, {t, qk});
              run.outputs = {y, rstd};
              run.bytes = bytes_of_all({x, y, rstd});
              run.run = [=](Exec& exec) { qk_norm_rope_fwd(exec, y, rstd, x, qw, kw, table, positions, l, kEps); };
              return run;
            }
            // In place: the values' gradient stays where it is.
            const Tensor dy = stage.normal(kData, x.shape, seed + 3);
            const Tensor rstd = stage.positive(DType::kF32, {t, qk}, seed + 4);
            const Tensor dqw = stage.zeros(DType::kF32, {l.head_dim}), dkw = stage.zeros(DType::kF32, {l.head_dim});
            run.outputs = {dy, dqw, dkw};
            run.bytes = 3.0 * static_cast<double>(bytes_of(kData, t * qk * l.head_dim)) + bytes_of_all({rstd});
            run.scratch = row_reduction_scratch_bytes(t, l.qkv_cols());
            run.run = [=](Exec& exec) {
              qk_norm_rope_bwd(exec, dy, dqw, dkw, dy, x, rstd, qw, kw, table, positions, l);
            };
            return run;
          }};
}

// Ends of documents inside rows of `sequence`: all of a row, or lengths like those of articles.
std::vector<int32_t> documents(int64_t tokens, int64_t sequence, bool packed) {
  std::vector<int32_t> offsets{0};
  const std::vector<int32_t> drawn = random_integers(4096, 1000, 7);
  for (size_t i = 0; offsets.back() < tokens; ++i) {
    const int64_t left = std::min(sequence - offsets.back() % sequence, tokens - offsets.back());
    // Exponential, mean 650 in a row of 4096: about six documents a row, Σ s² / Σ s about 1,100.
    const double u = (drawn[i % drawn.size()] + 0.5) / 1000;
    const int64_t length =
        packed ? 1 + static_cast<int64_t>(-650.0 / 4096 * static_cast<double>(sequence) * std::log(u)) : sequence;
    offsets.push_back(offsets.back() + static_cast<int32_t>(std::min(length, left)));
  }
  return offsets;
}

BenchCase attention(const Sizes& s, bool backward, bool packed) {
  const HeadLayout l = s.heads;
  return {backward ? "attention_bwd" : "attention_fwd",
          named(s, fmt::format("{}/{} heads of {}, {}", l.heads, l.kv_heads, l.head_dim,
                               packed ? fmt::format("packed in {}", s.sequence) : fmt::format("S {}", s.sequence))),
          kAttention, [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const int64_t sequence = std::min(s.sequence, t), width = l.heads * l.head_dim;
            const std::vector<int32_t> ends = documents(t, sequence, packed);
            const Tensor qkv = stage.normal(kData, {t, l.qkv_cols()}, seed), out = stage.zeros(kData, {t, width});
            const Tensor lse = stage.zeros(DType::kF32, {l.heads, t});
            const Segments segments{
                .offsets = stage.integers(ends), .longest = sequence, .uniform = packed ? 0 : sequence};
            const float scale = 1 / std::sqrt(static_cast<float>(l.head_dim));
            double squares = 0;
            for (size_t i = 1; i < ends.size(); ++i)
              squares += static_cast<double>(ends[i] - ends[i - 1]) * (ends[i] - ends[i - 1]);
            BenchRun run;
            run.flops = 2 * squares * static_cast<double>(width) * (backward ? 2.5 : 1);
            run.scratch = attention_scratch_bytes(kData, t, sequence, static_cast<int64_t>(ends.size()) - 1, l);
            const auto forward = [=](Exec& exec) { attention_fwd(exec, out, lse, qkv, segments, l, scale); };
            if (!backward) {
              run.outputs = {out};  // the order of lse is the kernels' own; the backward pass proves it
              run.bytes = bytes_of_all({qkv, out, lse});
              run.run = forward;
              return run;
            }
            const Tensor dout = stage.normal(kData, out.shape, seed + 1), dqkv = stage.zeros(kData, qkv.shape);
            stage.reserve_scratch(run.scratch);
            forward(stage.exec());
            run.outputs = {dqkv};
            run.bytes = bytes_of_all({qkv, out, lse, dout, dqkv});
            run.run = [=](Exec& exec) { attention_bwd(exec, dqkv, dout, qkv, out, lse, segments, l, scale); };
            return run;
          }};
}

BenchCase decoding(const Sizes& s) {
  const HeadLayout l = s.heads;
  return {"cached_attention", named(s, "1 token, cache of T/4"), kAttention,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            // The op fills the cache itself: devices lay keys out in their own way.
            const int64_t capacity = t / 4, length = capacity - 1, width = l.heads * l.head_dim;
            const KvCache cache = make_kv_cache(stage, kData, l, capacity);
            const Tensor past = stage.normal(kData, {length, l.qkv_cols()}, seed);
            const Tensor past_out = stage.zeros(kData, {length, width});
            const Tensor qkv = stage.normal(kData, {1, l.qkv_cols()}, seed + 2);
            const Tensor out = stage.zeros(kData, {1, width});
            const float scale = 1 / std::sqrt(static_cast<float>(l.head_dim));
            BenchRun run;
            run.scratch =
                std::max(cached_attention_scratch_bytes(l, 0, length), cached_attention_scratch_bytes(l, length, 1));
            stage.reserve_scratch(run.scratch);
            cached_attention(stage.exec(), past_out, cache, 0, past, l, scale);
            run.outputs = {out};
            run.bytes = static_cast<double>(cache.bytes());
            run.run = [=](Exec& exec) { cached_attention(exec, out, cache, length, qkv, l, scale); };
            return run;
          }};
}

// --- embedding and loss

BenchCase embedding(const Sizes& s, bool backward) {
  return {backward ? "embedding_bwd" : "embedding_fwd", named(s, fmt::format("V {} H {}", s.vocab, s.hidden)), kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor ids = stage.integers(random_integers(t, s.vocab, seed));
            const Tensor table = stage.normal(kData, {s.vocab, s.hidden}, seed + 1);
            const Tensor positions = stage.integers(counting(t, s.sequence));
            const bool learned = s.heads.head_dim == kGpt2.heads.head_dim;  // positions of their own
            const Tensor places = learned ? stage.normal(kData, {s.sequence, s.hidden}, seed + 2) : Tensor{};
            const auto row = static_cast<double>(bytes_of(kData, s.hidden)), T = static_cast<double>(t);
            const auto v = static_cast<double>(s.vocab);
            BenchRun run;
            if (!backward) {
              const Tensor y = stage.zeros(kData, {t, s.hidden});
              run.outputs = {y};
              run.bytes = 2 * T * row + bytes_of_all({ids}) + (learned ? bytes_of_all({positions, places}) : 0);
              run.run = [=](Exec& exec) { embedding_fwd(exec, y, ids, table, learned ? positions : Tensor{}, places); };
              return run;
            }
            const Tensor dy = stage.normal(kData, {t, s.hidden}, seed + 3);
            run.outputs = {table};
            if (learned) run.outputs.push_back(places);
            // Rows that random ids name, read and written.
            run.bytes = T * row + 2 * v * (1 - std::pow(1 - 1 / v, T)) * row + bytes_of_all({ids}) +
                        (learned ? 2 * bytes_of_all({places}) : 0);
            run.scratch = embedding_scratch_bytes(t, s.vocab, s.hidden);
            run.run = [=](Exec& exec) { embedding_bwd(exec, table, places, dy, ids, learned ? positions : Tensor{}); };
            return run;
          }};
}

BenchCase loss(const Sizes& s) {
  const int64_t columns = ceil_div(s.vocab, 128) * 128;
  return {"cross_entropy", named(s, fmt::format("T/8 rows, V {}", s.vocab)), 5 * kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const int64_t rows = t / 8;
            const Tensor logits = stage.normal(kData, {rows, columns}, seed);
            std::vector<int32_t> chosen = random_integers(rows, s.vocab, seed + 1);
            for (size_t i = 0; i < chosen.size(); i += 16) chosen[i] = -100;
            const Tensor labels = stage.integers(chosen);
            const StepState step{.grad_scale = 1 / static_cast<float>(rows), .z_weight = 1e-4f};
            const Tensor state = stage.upload(DType::kU8, {sizeof step}, &step);
            const Tensor sums = stage.zeros(DType::kU8, {sizeof(LossSums)});
            BenchRun run;
            run.outputs = {logits};
            run.bytes = 2 * bytes_of_all({logits}) + bytes_of_all({labels});
            run.scratch = cross_entropy_scratch_bytes(rows);
            run.run = [=](Exec& exec) {
              cross_entropy(exec, static_cast<LossSums*>(sums.data), logits, s.vocab, labels,
                            static_cast<const StepState*>(state.data));
            };
            return run;
          }};
}

// --- elementwise and optimizer

BenchCase bias(const Sizes& s, int64_t columns) {
  return {"bias_bwd", named(s, fmt::format("N {}", columns)), kBf16, [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor dy = stage.normal(kData, {t, columns}, seed), db = stage.zeros(DType::kF32, {columns});
            BenchRun run;
            run.outputs = {db};
            run.bytes = bytes_of_all({dy, db});
            run.scratch = row_reduction_scratch_bytes(t, columns);
            run.run = [=](Exec& exec) { bias_bwd(exec, db, dy); };
            return run;
          }};
}

BenchCase sum(const Sizes& s) {
  return {"add", named(s, fmt::format("H {}", s.hidden)), kExact, [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Shape shape{t, s.hidden};
            const Tensor a = stage.normal(kData, shape, seed), b = stage.normal(kData, shape, seed + 1);
            const Tensor y = stage.zeros(kData, shape);
            BenchRun run;
            run.outputs = {y};
            run.bytes = bytes_of_all({a, b, y});
            run.run = [=](Exec& exec) { add(exec, y, a, b); };
            return run;
          }};
}

constexpr int64_t kElements = 16384;  // of a parameter op, a token

BenchCase conversion(DType from, DType to) {
  return {"cast", fmt::format("{} to {}", name_of(from), name_of(to)), kExact,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor x = stage.normal(from, {t * kElements}, seed), y = stage.zeros(to, x.shape);
            BenchRun run;
            run.outputs = {y};
            run.bytes = bytes_of_all({x, y});
            run.run = [=](Exec& exec) { cast(exec, y, x); };
            return run;
          }};
}

BenchCase reading(bool squares) {
  return {squares ? "sum_of_squares" : "first_nonfinite", "bf16, read back", kF32,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            const Tensor x = stage.normal(kData, {t * kElements}, seed);
            BenchRun run;
            run.scalar = std::make_shared<double>();
            run.scratch = int64_t{1} << 20;  // partial results
            run.bytes = bytes_of_all({x});
            run.run = [=, scalar = run.scalar](Exec& exec) {
              *scalar = squares ? sum_of_squares(exec, x) : static_cast<double>(first_nonfinite(exec, x));
            };
            return run;
          }};
}

struct Update {
  const char* name;
  bool master, stochastic;
  DType grad, state;
};

BenchCase optimizer(const Update& u) {
  return {"adamw_update", u.name, u.state == DType::kU8 ? 2e-2 : kBf16,
          [=](BenchStage& stage, int64_t t, uint64_t seed) {
            // One large matrix and eight vectors, as models have them.
            BenchRun run;
            auto params = std::make_shared<std::vector<AdamwParam>>();
            for (int i = 0; i < 9; ++i) {
              const int64_t n = i == 0 ? t * kElements : 2048 + 3 * i;
              const uint64_t at = seed + 16 * static_cast<uint64_t>(i);
              AdamwParam p{.param = stage.normal(u.master ? DType::kF32 : kData, {n}, at),
                           .copy = u.master ? stage.zeros(kData, {n}) : Tensor{},
                           .grad = stage.normal(u.grad, {n}, at + 1),
                           .m = {},
                           .v = {},
                           .m_scale = {},
                           .v_scale = {},
                           .decays = i == 0,
                           .id = static_cast<uint32_t>(i)};
              if (u.state == DType::kU8) {
                p.m = stage.zeros(u.state, {n}), p.v = stage.zeros(u.state, {n});
                p.m_scale = stage.zeros(DType::kF32, {ceil_div(n, kMomentBlock)});
                p.v_scale = stage.zeros(DType::kF32, {ceil_div(n, kMomentBlock)});
              } else {
                p.m = stage.normal(u.state, {n}, at + 2), p.v = stage.positive(u.state, {n}, at + 3);
                run.outputs.insert(run.outputs.end(), {p.m, p.v});
              }
              run.outputs.push_back(p.param);
              run.bytes += 2 * bytes_of_all({p.param, p.m, p.v, p.grad}) + bytes_of_all({p.copy});
              if (p.m_scale) run.bytes += 2 * bytes_of_all({p.m_scale, p.v_scale});
              params->push_back(p);
            }
            const Tensor outcome = stage.zeros(DType::kU8, {sizeof(AdamwOutcome)});
            run.scratch = adamw_scratch_bytes(*params);
            run.run = [=](Exec& exec) {
              adamw_update(exec, static_cast<AdamwOutcome*>(outcome.data), *params, {.lr = 1e-2f, .weight_decay = 0.1f},
                           1, u.stochastic);
            };
            return run;
          }};
}

}  // namespace

std::vector<BenchCase> bench_cases() {
  std::vector<BenchCase> cases;
  const auto put = [&cases](BenchCase c) { cases.push_back(std::move(c)); };
  for (const Sizes& s : {kQwen3, kQwen25, kLlama}) put(rms_forward(s, true));
  put(rms_forward(kQwen3, false));
  for (const Sizes& s : {kQwen3, kQwen25, kLlama}) put(rms_backward(s));
  put(layer_forward(kGpt2, true)), put(layer_forward(kGpt2, false)), put(layer_backward(kGpt2));
  for (const bool backward : {false, true}) {
    for (const Sizes& s : {kQwen3, kQwen25, kLlama}) put(activation(s, true, backward));
    put(activation(kGpt2, false, backward));
  }
  for (const bool backward : {false, true}) {
    put(qk_norm_rope(kQwen3, backward));
    for (const Sizes& s : {kQwen25, kLlama}) put(rope(s, backward));
  }
  for (const Sizes& s : {kQwen3, kQwen25, kLlama, kGpt2})
    for (const bool backward : {false, true}) put(attention(s, backward, false));
  for (const bool backward : {false, true}) put(attention(kQwen3, backward, true));
  put(decoding(kQwen3)), put(decoding(kLlama));
  for (const bool backward : {false, true})
    for (const Sizes& s : {kQwen3, kGpt2}) put(embedding(s, backward));
  for (const Sizes& s : {kQwen3, kLlama, kGpt2}) put(loss(s));
  put(sum(kQwen3)), put(sum(kGpt2));
  put(bias(kQwen25, kQwen25.heads.qkv_cols()));
  put(bias(kGpt2, kGpt2.hidden)), put(bias(kGpt2, 3 * kGpt2.hidden)), put(bias(kGpt2, kGpt2.intermediate));
  put(conversion(DType::kF32, DType::kBF16)), put(conversion(DType::kBF16, DType::kF32));
  put(reading(true)), put(reading(false));
  put(optimizer({"BF16 weights and moments", false, false, kData, kData}));
  put(optimizer({"BF16 weights, stochastic, 8-bit moments", false, true, kData, DType::kU8}));
  put(optimizer({"FP32 master and moments", true, false, DType::kF32, DType::kF32}));
  return cases;
}

}  // namespace mantissa
