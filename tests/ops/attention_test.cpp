#include "ops/attention.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "ops/cpu/attention.h"
#include "ops/cpu_gemm/candidates.h"
#include "tests/ops/finite_difference.h"

namespace mantissa {
namespace {

using namespace test;

struct Case {
  const char* name;
  HeadLayout layout;
  std::vector<int> lengths;  // of the documents

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t out_cols() const { return layout.heads * layout.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(layout.head_dim)); }
  std::vector<int32_t> segments() const {
    std::vector<int32_t> s{0};
    for (int n : lengths) s.push_back(s.back() + n);
    return s;
  }
};

// Lengths on, below and above the kernels' blocks; 0 is an empty document.
const Case kCases[] = {
    {"one_token", {1, 1, 16}, {1}},
    {"short_documents", {2, 2, 16}, {1, 2, 3, 0, 15, 16, 17, 1}},
    {"group_2", {4, 2, 64}, {63, 64, 65, 20}},
    {"group_4", {4, 1, 32}, {33, 130, 1}},
    {"group_3_long", {6, 2, 64}, {300, 7}},
    {"many_heads", {20, 1, 16}, {50, 70}},
    {"head_dim_80", {2, 1, 80}, {100, 31}},
    {"head_dim_128", {4, 2, 128}, {150, 40}},
    {"head_dim_256", {2, 1, 256}, {90, 129}},
    {"head_dim_6", {2, 1, 6}, {40, 9}},
    {"two_forward_panels", {2, 1, 16}, {600, 30}},
    {"two_backward_panels", {1, 1, 256}, {1040}},
    {"two_backward_panels_in_f32", {2, 1, 256}, {660}},
};

struct Inputs {
  std::vector<float> qkv, dout;  // exact in BF16 too
};

Inputs inputs_of(const Case& c) {
  const auto rounded = [](std::vector<float> x) { return test::to_float(test::to_bf16(x)); };
  return {rounded(random_normal(c.tokens() * c.layout.qkv_cols(), 1)),
          rounded(random_normal(c.tokens() * c.out_cols(), 2))};
}

struct Result {
  std::vector<float> out, lse, dqkv;
};

// The same in double precision, by the textbook: softmax, then its Jacobian.
struct Reference {
  std::vector<double> out, lse, dqkv;
};

Reference reference_of(const Case& c, const Inputs& in) {
  const int64_t tokens = c.tokens(), cols = c.layout.qkv_cols(), dim = c.layout.head_dim, heads = c.layout.heads;
  Reference r{std::vector<double>(static_cast<size_t>(tokens * c.out_cols())),
              std::vector<double>(static_cast<size_t>(heads * tokens)),
              std::vector<double>(static_cast<size_t>(tokens * cols))};
  const std::vector<int32_t> segments = c.segments();
  const double scale = c.scale();
  for (size_t s = 0; s + 1 < segments.size(); ++s)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = segments[s]; i < segments[s + 1]; ++i) {
        const int64_t begin = segments[s], kv = h / (heads / c.layout.kv_heads);
        const int64_t k_col = (heads + kv) * dim, v_col = k_col + c.layout.kv_heads * dim;
        const float* q = &in.qkv[static_cast<size_t>(i * cols + h * dim)];
        const float* dout = &in.dout[static_cast<size_t>(i * c.out_cols() + h * dim)];
        std::vector<double> p(static_cast<size_t>(i - begin + 1)), dp(p.size());
        double sum = 0, mean = 0;
        for (int64_t j = begin; j <= i; ++j) {
          const float* k = &in.qkv[static_cast<size_t>(j * cols + k_col)];
          const float* v = &in.qkv[static_cast<size_t>(j * cols + v_col)];
          double dot = 0, gradient = 0;
          for (int64_t d = 0; d < dim; ++d) dot += double{q[d]} * k[d], gradient += double{dout[d]} * v[d];
          sum += p[static_cast<size_t>(j - begin)] = std::exp(scale * dot);
          dp[static_cast<size_t>(j - begin)] = gradient;
        }
        for (size_t j = 0; j < p.size(); ++j) p[j] /= sum, mean += p[j] * dp[j];
        r.lse[static_cast<size_t>(h * tokens + i)] = std::log(sum);
        for (int64_t j = begin; j <= i; ++j) {
          const double pj = p[static_cast<size_t>(j - begin)],
                       ds = scale * pj * (dp[static_cast<size_t>(j - begin)] - mean);
          for (int64_t d = 0; d < dim; ++d) {
            r.out[static_cast<size_t>(i * c.out_cols() + h * dim + d)] +=
                pj * in.qkv[static_cast<size_t>(j * cols + v_col + d)];
            r.dqkv[static_cast<size_t>(i * cols + h * dim + d)] +=
                ds * in.qkv[static_cast<size_t>(j * cols + k_col + d)];
            r.dqkv[static_cast<size_t>(j * cols + k_col + d)] += ds * q[d];
            r.dqkv[static_cast<size_t>(j * cols + v_col + d)] += pj * dout[d];
          }
        }
      }
  return r;
}

// Forward and backward through the public op.
Result run(Exec& exec, const Case& c, const Inputs& in, DType dtype) {
  const int64_t tokens = c.tokens();
  std::vector<int32_t> segments = c.segments();
  const Segments seg{.offsets = {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}};
  Result r;
  r.lse.assign(static_cast<size_t>(c.layout.heads * tokens), NAN);
  const Tensor lse(r.lse.data(), DType::kF32, {c.layout.heads, tokens});
  const auto both = [&](auto& qkv, auto& dout, auto& out, auto& dqkv) {
    const Tensor q(qkv.data(), dtype, {tokens, c.layout.qkv_cols()}), dq(dqkv.data(), dtype, q.shape);
    const Tensor o(out.data(), dtype, {tokens, c.out_cols()}), d_o(dout.data(), dtype, o.shape);
    attention_fwd(exec, o, lse, q, seg, c.layout, c.scale());
    attention_bwd(exec, dq, d_o, q, o, lse, seg, c.layout, c.scale());
  };
  if (dtype == DType::kF32) {
    std::vector<float> qkv = in.qkv, dout = in.dout;
    r.out.assign(dout.size(), NAN), r.dqkv.assign(qkv.size(), NAN);
    both(qkv, dout, r.out, r.dqkv);
  } else {
    std::vector<bf16> qkv = test::to_bf16(in.qkv), dout = test::to_bf16(in.dout);
    std::vector<bf16> out(dout.size(), bf16{0x7fc0}), dqkv(qkv.size(), bf16{0x7fc0});
    both(qkv, dout, out, dqkv);
    r.out = test::to_float(out), r.dqkv = test::to_float(dqkv);
  }
  return r;
}

// BF16 forward and backward on one of the kernels that multiply.
Result run_on(Exec& exec, const TileKernel& kernel, const Case& c, const Inputs& in) {
  const int64_t tokens = c.tokens();
  std::vector<int32_t> segments = c.segments();
  std::vector<bf16> qkv = test::to_bf16(in.qkv), dout = test::to_bf16(in.dout);
  std::vector<bf16> out(dout.size(), bf16{0x7fc0}), dqkv(qkv.size(), bf16{0x7fc0});
  Result r;
  r.lse.assign(static_cast<size_t>(c.layout.heads * tokens), NAN);
  AttentionJob<bf16> job{.qkv = qkv.data(),
                         .segments = segments.data(),
                         .segment_count = static_cast<int64_t>(segments.size()) - 1,
                         .tokens = tokens,
                         .layout = c.layout,
                         .scale = c.scale(),
                         .kernel = &kernel,
                         .out = out.data(),
                         .lse = r.lse.data(),
                         .dout = dout.data(),
                         .dqkv = dqkv.data()};
  EXPECT_TRUE(MANTISSA_CPU_CALL(exec, attention_fwd, exec, job));
  EXPECT_TRUE(MANTISSA_CPU_CALL(exec, attention_bwd, exec, job));
  r.out = test::to_float(out), r.dqkv = test::to_float(dqkv);
  return r;
}

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
    if (isa <= detect_isa()) all.push_back(isa);
  return all;
}

// Every kernel that this machine has for `exec`: AMX, AVX512-BF16 and FP32 ones.
std::vector<const TileKernel*> kernels(const Exec& exec) {
  std::vector<const TileKernel*> all;
  for (const GemmCandidate& candidate : gemm_candidates())
    if (candidate.engine && std::string(candidate.missing(exec)).empty()) all.push_back(&candidate.engine->tiles);
  return all;
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, F32MatchesDoubleReference) {
  const Inputs in = inputs_of(GetParam());
  const Reference want = reference_of(GetParam(), in);
  for (Isa isa : isas()) {
    SCOPED_TRACE(name_of(isa));
    Exec exec(isa);
    const Result got = run(exec, GetParam(), in, DType::kF32);
    EXPECT_LT(relative_error(got.out, want.out), kF32Bound);
    EXPECT_LT(relative_error(got.lse, want.lse), kF32Bound);
    EXPECT_LT(relative_error(got.dqkv, want.dqkv), kF32Bound);
  }
}

TEST_P(Attention, Bf16MatchesDoubleReferenceOnEveryKernel) {
  const Inputs in = inputs_of(GetParam());
  const Reference want = reference_of(GetParam(), in);
  const auto expect_near = [&](const Result& got) {
    EXPECT_LT(relative_error(got.out, want.out), kBf16Bound);
    EXPECT_LT(relative_error(got.lse, want.lse), kF32Bound);
    EXPECT_LT(relative_error(got.dqkv, want.dqkv), kBf16Bound);
  };
  for (Isa isa : isas()) {
    Exec exec(isa);
    for (const TileKernel* kernel : kernels(exec)) {
      SCOPED_TRACE(std::string(name_of(isa)) + " multiplies by " + kernel->name);
      expect_near(run_on(exec, *kernel, GetParam(), in));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention, testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

TEST(AttentionGradient, MatchesFiniteDifferences) {
  const Case c{"", {2, 1, 4}, {1, 5, 3}};
  Exec exec;
  const Inputs in = inputs_of(c);
  const Result got = run(exec, c, in, DType::kF32);
  const std::vector<double> want = finite_difference(in.qkv, 1e-2f, [&](const std::vector<float>& qkv) {
    return test::weighted_sum(in.dout, run(exec, c, {qkv, in.dout}, DType::kF32).out);
  });
  EXPECT_LT(relative_error(got.dqkv, want), kFiniteDifferenceBound);
}

// The same document gives the same bits wherever it lies in a row and whatever lies beside it, on every kernel.
TEST(AttentionPacking, DocumentGivesTheSameBitsAtAnyOffset) {
  const HeadLayout layout{4, 2, 64};
  const int64_t n = 150, cols = layout.qkv_cols(), out_cols = layout.heads * layout.head_dim;
  const Case alone{"", layout, {150}};
  const Inputs document = inputs_of(alone);
  Exec exec;
  for (int offset : {1, 37, 64}) {
    const Case packed{"", layout, {offset, 150, 29}};
    Inputs in{random_normal(packed.tokens() * cols, 3), random_normal(packed.tokens() * out_cols, 4)};
    std::copy(document.qkv.begin(), document.qkv.end(), in.qkv.begin() + offset * cols);
    std::copy(document.dout.begin(), document.dout.end(), in.dout.begin() + offset * out_cols);
    const auto expect_same = [&](const Result& want, const Result& got) {
      for (int64_t i = 0; i < n * out_cols; ++i)
        ASSERT_EQ(want.out[static_cast<size_t>(i)], got.out[static_cast<size_t>(offset * out_cols + i)]);
      for (int64_t i = 0; i < n * cols; ++i)
        ASSERT_EQ(want.dqkv[static_cast<size_t>(i)], got.dqkv[static_cast<size_t>(offset * cols + i)]);
    };
    for (const TileKernel* kernel : kernels(exec)) {
      SCOPED_TRACE(kernel->name);
      expect_same(run_on(exec, *kernel, alone, document), run_on(exec, *kernel, packed, in));
    }
    expect_same(run(exec, alone, document, DType::kF32), run(exec, packed, in, DType::kF32));
  }
}

TEST(AttentionPacking, TwoRunsGiveTheSameBits) {
  const Case c{"", {4, 2, 64}, {200, 3, 90}};
  const Inputs in = inputs_of(c);
  Exec exec;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Result a = run(exec, c, in, dtype), b = run(exec, c, in, dtype);
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(a.lse, b.lse);
    EXPECT_EQ(a.dqkv, b.dqkv);
  }
}

// Scores far from zero: no overflow, no loss of the small ones.
TEST(AttentionSoftmax, LargeScoresStayFinite) {
  const Case c{"", {1, 1, 16}, {80}};
  Inputs in = inputs_of(c);
  for (float& x : in.qkv) x *= 16;
  in.qkv = test::to_float(test::to_bf16(in.qkv));
  Exec exec;
  const Result f32 = run(exec, c, in, DType::kF32);
  // exp() of the reference would overflow; out stays a convex combination of the values.
  for (float v : f32.out) {
    ASSERT_TRUE(std::isfinite(v));
    ASSERT_LE(std::abs(v), 16 * 6);
  }
  for (const TileKernel* kernel : kernels(exec)) {
    SCOPED_TRACE(kernel->name);
    const Result got = run_on(exec, *kernel, c, in);
    EXPECT_LT(relative_error(got.out, f32.out), kBf16Bound);
    EXPECT_LT(relative_error(got.lse, f32.lse), kF32Bound);
    for (float v : got.dqkv) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST(AttentionArguments, AreChecked) {
  Exec exec;
  std::vector<float> qkv(4 * 32), out(4 * 16), lse(8);
  const HeadLayout layout{2, 1, 8};
  const auto fwd = [&](std::vector<int32_t> segments, const HeadLayout& l, Shape lse_shape) {
    attention_fwd(exec, {out.data(), DType::kF32, {4, 16}}, {lse.data(), DType::kF32, lse_shape},
                  {qkv.data(), DType::kF32, {4, 32}},
                  {.offsets = {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}}, l, 1);
  };
  const auto message = [&](auto&&... args) -> std::string {
    try {
      fwd(args...);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(std::vector<int32_t>{0, 4}, layout, Shape{2, 4}), "");
  EXPECT_EQ(message(std::vector<int32_t>{0, 4}, layout, Shape{4, 2}),
            "attention_fwd: lse is f32[4,2], expected f32[2,4] ([N, T])");
  EXPECT_EQ(message(std::vector<int32_t>{0, 3}, layout, Shape{2, 4}),
            "attention_fwd: segments go from 0 to 3, expected 0 to 4 (T of qkv)");
  EXPECT_EQ(message(std::vector<int32_t>{0, 3, 2, 4}, layout, Shape{2, 4}),
            "attention_fwd: segments[2] is 2, after 3: expected ascending offsets");
  EXPECT_EQ(message(std::vector<int32_t>{0, 4}, HeadLayout{3, 2, 8}, Shape{2, 4}),
            "attention_fwd: 3 heads, expected a multiple of 2 kv heads");
}

}  // namespace
}  // namespace mantissa
