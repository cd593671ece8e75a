#include "ops/rope.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/ops/finite_difference.h"

namespace mantissa {
namespace {

using namespace test;

constexpr float kEps = 1e-6f;

struct Problem {
  HeadLayout layout;
  int64_t tokens;
  std::vector<float> cos_sin;  // [tokens, D]
  std::vector<int32_t> positions;
  std::vector<float> x, dy, q_weight, k_weight;

  Problem(HeadLayout l, int64_t n) : layout(l), tokens(n) {
    const int64_t half = l.head_dim / 2;
    for (int64_t p = 0; p < n; ++p)
      for (int part = 0; part < 2; ++part)
        for (int64_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
          cos_sin.push_back(static_cast<float>(part ? std::sin(angle) : std::cos(angle)));
        }
    for (int64_t t = 0; t < n; ++t) positions.push_back(static_cast<int32_t>(t < n / 3 ? t : t - n / 3));
    const auto rounded = [](std::vector<float> v) { return test::to_float(test::to_bf16(v)); };
    x = rounded(random_normal(n * l.qkv_cols(), 1));
    dy = rounded(random_normal(n * l.qkv_cols(), 2));
    q_weight = rounded(random_normal(l.head_dim, 3));
    k_weight = rounded(random_normal(l.head_dim, 4));
  }

  Shape shape() const { return {tokens, layout.qkv_cols()}; }
  ConstTensor table() const { return {cos_sin.data(), DType::kF32, {tokens, layout.head_dim}}; }
  ConstTensor position_tensor() const { return {positions.data(), DType::kI32, {tokens}}; }
};

struct Result {
  std::vector<float> y, dx, dq_weight, dk_weight;
};

enum class Storage { kSeparate, kInPlace };

// Runs forward and backward with elements E; `norm` chooses the fused op. Weight gradients start from 1.
template <class E>
Result run(Exec& exec, const Problem& p, bool norm, Storage storage) {
  const DType dtype = std::is_same_v<E, float> ? DType::kF32 : DType::kBF16;
  const auto cast = [](const std::vector<float>& v) {
    if constexpr (std::is_same_v<E, float>)
      return v;
    else
      return test::to_bf16(v);
  };
  const auto widen = [](const std::vector<E>& v) {
    if constexpr (std::is_same_v<E, float>)
      return v;
    else
      return test::to_float(v);
  };
  std::vector<E> x = cast(p.x), dy = cast(p.dy), y(x.size()), dx(x.size()), qw = cast(p.q_weight),
                 kw = cast(p.k_weight);
  std::vector<float> rstd(static_cast<size_t>(p.tokens * (p.layout.heads + p.layout.kv_heads)));
  std::vector<float> dqw(static_cast<size_t>(p.layout.head_dim), 1.0f), dkw = dqw;
  const bool in_place = storage == Storage::kInPlace;
  std::vector<E> source = x;  // the backward of the norm reads x
  const Tensor tx(x.data(), dtype, p.shape()), tdy(dy.data(), dtype, p.shape());
  const Tensor ty = in_place ? tx : Tensor(y.data(), dtype, p.shape());
  const Tensor tdx = in_place ? tdy : Tensor(dx.data(), dtype, p.shape());
  const Tensor tsource(source.data(), dtype, p.shape());
  const Tensor tr(rstd.data(), DType::kF32, {p.tokens, p.layout.heads + p.layout.kv_heads});
  const Shape d{p.layout.head_dim};
  const ConstTensor tqw(qw.data(), dtype, d), tkw(kw.data(), dtype, d);
  if (norm) {
    qk_norm_rope_fwd(exec, ty, tr, tx, tqw, tkw, p.table(), p.position_tensor(), p.layout, kEps);
    qk_norm_rope_bwd(exec, tdx, {dqw.data(), DType::kF32, d}, {dkw.data(), DType::kF32, d}, tdy, tsource, tr, tqw, tkw,
                     p.table(), p.position_tensor(), p.layout);
  } else {
    rope_fwd(exec, ty, tx, p.table(), p.position_tensor(), p.layout);
    rope_bwd(exec, tdx, tdy, p.table(), p.position_tensor(), p.layout);
  }
  for (float& g : dqw) g -= 1;
  for (float& g : dkw) g -= 1;
  return {widen(in_place ? x : y), widen(in_place ? dy : dx), dqw, dkw};
}

// transformers' rotate_half form in double: y = n cos + rotate_half(n) sin, n = x or x rstd weight.
std::vector<double> reference(const Problem& p, bool norm) {
  std::vector<double> y(p.x.begin(), p.x.end());
  const int64_t dim = p.layout.head_dim, half = dim / 2, cols = p.layout.qkv_cols();
  for (int64_t t = 0; t < p.tokens; ++t)
    for (int64_t h = 0; h < p.layout.heads + p.layout.kv_heads; ++h) {
      double* row = &y[static_cast<size_t>(t * cols + h * dim)];
      const float* table = &p.cos_sin[static_cast<size_t>(p.positions[static_cast<size_t>(t)] * dim)];
      std::vector<double> n(row, row + dim);
      if (norm) {
        double squares = 0;
        for (double v : n) squares += v * v;
        const auto& weight = h < p.layout.heads ? p.q_weight : p.k_weight;
        for (int64_t i = 0; i < dim; ++i)
          n[static_cast<size_t>(i)] *=
              weight[static_cast<size_t>(i)] / std::sqrt(squares / static_cast<double>(dim) + double{kEps});
      }
      for (int64_t i = 0; i < dim; ++i) {
        const double turned = i < half ? -n[static_cast<size_t>(i + half)] : n[static_cast<size_t>(i - half)];
        row[i] = n[static_cast<size_t>(i)] * table[i % half] + turned * table[half + i % half];
      }
    }
  return y;
}

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
    if (isa <= detect_isa()) all.push_back(isa);
  return all;
}

const HeadLayout kLayouts[] = {{1, 1, 2}, {4, 2, 16}, {2, 1, 80}, {4, 1, 128}, {3, 3, 64}};

TEST(Rope, ForwardMatchesRotateHalf) {
  for (const HeadLayout& layout : kLayouts) {
    const Problem p(layout, 50);
    for (bool norm : {false, true}) {
      const std::vector<double> want = reference(p, norm);
      for (Isa isa : isas()) {
        SCOPED_TRACE(name_of(isa));
        Exec exec(isa);
        EXPECT_LT(relative_error(run<float>(exec, p, norm, Storage::kSeparate).y, want), kF32Bound);
        EXPECT_LT(relative_error(run<bf16>(exec, p, norm, Storage::kSeparate).y, want), kBf16Bound);
      }
    }
  }
}

TEST(Rope, ForwardCopiesValues) {
  const Problem p({4, 2, 16}, 20);
  Exec exec;
  for (bool norm : {false, true}) {
    const Result r = run<float>(exec, p, norm, Storage::kSeparate);
    for (int64_t t = 0; t < p.tokens; ++t)
      for (int64_t i = 6 * 16; i < 8 * 16; ++i) {
        ASSERT_EQ(r.y[static_cast<size_t>(t * 128 + i)], p.x[static_cast<size_t>(t * 128 + i)]);
        ASSERT_EQ(r.dx[static_cast<size_t>(t * 128 + i)], p.dy[static_cast<size_t>(t * 128 + i)]);
      }
  }
}

TEST(Rope, BackwardUndoesForward) {
  Problem p({4, 2, 64}, 30);
  Exec exec;
  p.dy = run<float>(exec, p, false, Storage::kSeparate).y;
  EXPECT_LT(relative_error(run<float>(exec, p, false, Storage::kSeparate).dx, p.x), 1e-6);
}

TEST(Rope, GradientsMatchFiniteDifferences) {
  const Problem p({2, 1, 8}, 5);
  for (Isa isa : isas()) {
    SCOPED_TRACE(name_of(isa));
    Exec exec(isa);
    for (bool norm : {false, true}) {
      const auto gradient = [&](std::vector<float> Problem::*input) {
        return finite_difference(p.*input, 1e-2f, [&](const std::vector<float>& value) {
          Problem moved = p;
          moved.*input = value;
          return test::weighted_sum(p.dy, run<float>(exec, moved, norm, Storage::kSeparate).y);
        });
      };
      const Result r = run<float>(exec, p, norm, Storage::kSeparate);
      EXPECT_LT(relative_error(r.dx, gradient(&Problem::x)), kFiniteDifferenceBound);
      if (norm) {
        EXPECT_LT(relative_error(r.dq_weight, gradient(&Problem::q_weight)), kFiniteDifferenceBound);
        EXPECT_LT(relative_error(r.dk_weight, gradient(&Problem::k_weight)), kFiniteDifferenceBound);
      }
    }
  }
}

TEST(Rope, Bf16GradientsMatchF32) {
  for (const HeadLayout& layout : kLayouts) {
    const Problem p(layout, 700);
    Exec exec;
    for (bool norm : {false, true}) {
      const Result want = run<float>(exec, p, norm, Storage::kSeparate);
      const Result got = run<bf16>(exec, p, norm, Storage::kSeparate);
      EXPECT_LT(relative_error(got.dx, want.dx), kBf16Bound);
      if (norm) {
        // Sums in FP32 of the same exact inputs.
        EXPECT_LT(relative_error(got.dq_weight, want.dq_weight), kF32Bound);
        EXPECT_LT(relative_error(got.dk_weight, want.dk_weight), kF32Bound);
      }
    }
  }
}

TEST(Rope, InPlaceGivesTheSameBits) {
  const Problem p({4, 2, 64}, 300);
  Exec exec;
  for (bool norm : {false, true}) {
    const auto expect_same = [](const Result& a, const Result& b) {
      EXPECT_EQ(a.y, b.y);
      EXPECT_EQ(a.dx, b.dx);
      EXPECT_EQ(a.dq_weight, b.dq_weight);
      EXPECT_EQ(a.dk_weight, b.dk_weight);
    };
    expect_same(run<float>(exec, p, norm, Storage::kSeparate), run<float>(exec, p, norm, Storage::kInPlace));
    expect_same(run<bf16>(exec, p, norm, Storage::kSeparate), run<bf16>(exec, p, norm, Storage::kInPlace));
  }
}

TEST(Rope, PositionOutsideTheTableIsRefused) {
  Problem p({1, 1, 4}, 3);
  p.positions = {0, 3, 1};
  Exec exec;
  std::vector<float> y(p.x.size());
  try {
    rope_fwd(exec, {y.data(), DType::kF32, p.shape()}, {p.x.data(), DType::kF32, p.shape()}, p.table(),
             p.position_tensor(), p.layout);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rope_fwd: positions[1] is 3, expected [0, 3) (P of cos_sin)");
  }
}

}  // namespace
}  // namespace mantissa
