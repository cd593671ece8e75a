#include "ops/cached_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/cached_case.h"
#include "tests/ops/op_values.h"

namespace mantissa {
namespace {

using test::CachedCase;
using test::error_of;
using test::random_values;
using test::relative_error;
using test::Values;

// Contexts on, below and above the kernel's blocks of 16 and 32 positions; groups on and off its four rows.
const CachedCase kCases[] = {
    {"one_token", {1, 1, 16}, 1, {}},
    {"group_1", {4, 4, 64}, 33, {1, 2, 17, 32}},
    {"group_2", {4, 2, 64}, 130, {31, 64, 65, 129}},
    {"group_3", {6, 2, 32}, 70, {5, 69}},
    {"group_8", {8, 1, 128}, 97, {96}},
    {"head_dim_6", {2, 1, 6}, 40, {20}},
    {"head_dim_80", {2, 1, 80}, 50, {48}},
    {"head_dim_256", {2, 2, 256}, 35, {3}},
};

// One layer's cache and the calls that fill it.
class Cache {
 public:
  Cache(DType dtype, const HeadLayout& layout, int64_t tokens) : layout_(layout) {
    arena_.build([&](Arena& arena) { cache_ = make_kv_cache(arena, dtype, layout, tokens); });
  }
  void append(Exec& exec, Tensor out, int64_t length, ConstTensor qkv, float scale) {
    cached_attention(exec, out, cache_, length, qkv, layout_, scale);
  }
  const KvCache& cache() const { return cache_; }

 private:
  HeadLayout layout_;
  Arena arena_;
  KvCache cache_;
};

Values run(Exec& exec, const CachedCase& c, ConstTensor qkv, const std::vector<int64_t>& cuts) {
  Cache cache(qkv.dtype, c.layout, c.tokens);
  Values out(qkv.dtype, c.out(), std::vector<float>(static_cast<size_t>(c.out().count()), NAN));
  int64_t begin = 0;
  const auto call = [&](int64_t end) {
    cache.append(exec, out.tensor().slice(begin, end - begin), begin, qkv.slice(begin, end - begin), c.scale());
    begin = end;
  };
  for (int64_t end : cuts) call(end);
  call(c.tokens);
  return out;
}

// The textbook's softmax in double.
std::vector<double> reference_of(const CachedCase& c, const std::vector<float>& qkv) {
  const int64_t cols = c.layout.qkv_cols(), dim = c.layout.head_dim, heads = c.layout.heads;
  std::vector<double> out(static_cast<size_t>(c.out().count()));
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv = h / (heads / c.layout.kv_heads);
      const auto at = [&](int64_t token, int64_t col) { return double{qkv[static_cast<size_t>(token * cols + col)]}; };
      std::vector<double> p;
      double sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) dot += at(t, h * dim + d) * at(j, (heads + kv) * dim + d);
        p.push_back(std::exp(static_cast<double>(c.scale()) * dot));
        sum += p.back();
      }
      for (int64_t d = 0; d < dim; ++d) {
        double value = 0;
        for (int64_t j = 0; j <= t; ++j)
          value += p[static_cast<size_t>(j)] * at(j, (heads + c.layout.kv_heads + kv) * dim + d);
        out[static_cast<size_t>((t * heads + h) * dim + d)] = value / sum;
      }
    }
  return out;
}

class CachedAttention : public testing::TestWithParam<CachedCase> {};

TEST_P(CachedAttention, MatchesDoubleReferenceHoweverTokensAreCut) {
  const CachedCase& c = GetParam();
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Values qkv = random_values(dtype, c.qkv(), 1);
    const std::vector<double> want = reference_of(c, qkv.floats());
    std::vector<int64_t> singly;
    for (int64_t t = 1; t < c.tokens; ++t) singly.push_back(t);
    for (Isa isa : test::machine_isas()) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + name_of(isa));
      Exec exec(isa);
      const Values whole = run(exec, c, qkv, {});
      EXPECT_LT(relative_error(whole.floats(), want), test::bound_of(dtype));
      EXPECT_TRUE(run(exec, c, qkv, c.cuts) == whole);
      EXPECT_TRUE(run(exec, c, qkv, singly) == whole);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttention, testing::ValuesIn(kCases),
                         [](const auto& c) { return std::string(c.param.name); });

// The attention that trains, over one segment.
TEST(CachedAttentionBesideTraining, AgreesWithinItsPrecision) {
  const CachedCase c{"", {4, 2, 64}, 300, {}};
  Exec exec;
  std::vector<int32_t> segments = {0, 300};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Values qkv = random_values(dtype, c.qkv(), 2), out(dtype, c.out()), lse(DType::kF32, {4, 300});
    attention_fwd(exec, out, lse, qkv, {.offsets = {segments.data(), DType::kI32, {2}}}, c.layout, c.scale());
    const std::vector<float> trained = out.floats();
    EXPECT_LT(relative_error(run(exec, c, qkv, {100}).floats(), std::vector<double>(trained.begin(), trained.end())),
              test::bound_of(dtype));
  }
}

// What an earlier sequence left behind the context is not read, whatever it is.
TEST(CachedAttentionReuse, IgnoresWhatLiesBehindTheContext) {
  const CachedCase c{"", {4, 2, 64}, 40, {}};
  Exec exec;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Values qkv = random_values(dtype, c.qkv(), 3), bad(dtype, c.qkv(), std::vector<float>(40 * c.qkv()[1], NAN));
    Values out(dtype, c.out()), clean = run(exec, c, qkv, {});
    Cache cache(dtype, c.layout, c.tokens);
    cache.append(exec, out, 0, bad, c.scale());
    for (int64_t t = 0; t < c.tokens; ++t)
      cache.append(exec, out.tensor().slice(t, 1), t, ConstTensor(qkv).slice(t, 1), c.scale());
    EXPECT_TRUE(out == clean);
  }
}

TEST(CachedAttentionSoftmax, LargeScoresStayFinite) {
  const CachedCase c{"", {2, 2, 16}, 80, {}};
  Exec exec;
  Values qkv = random_values(DType::kF32, c.qkv(), 4, 16);
  for (float x : run(exec, c, qkv, {40}).floats()) ASSERT_TRUE(std::isfinite(x) && std::abs(x) < 16 * 6);
}

TEST(CachedAttentionThreads, GiveTheSameBits) {
  const CachedCase c{"", {6, 3, 32}, 90, {50}};
  Values qkv = random_values(DType::kBF16, c.qkv(), 5);
  const auto with = [&](int threads) {
    return test::with_threads(threads, [&] {
      Exec exec;
      return run(exec, c, qkv, c.cuts);
    });
  };
  const Values one = with(1);
  EXPECT_TRUE(with(2) == one);
  EXPECT_TRUE(with(3) == one);
}

TEST(CachedAttentionArguments, AreChecked) {
  Exec exec;
  const HeadLayout layout{2, 1, 8};
  Cache cache(DType::kF32, layout, 33);
  EXPECT_EQ(cache.cache().capacity(), 64);
  Values qkv(DType::kF32, {4, 32}), out(DType::kF32, {4, 16}), narrow(DType::kF32, {4, 8}), half(DType::kBF16, {4, 16});
  EXPECT_EQ(error_of([&] { cache.append(exec, out, 60, qkv, 1); }), "");
  EXPECT_EQ(error_of([&] { cache.append(exec, out, 61, qkv, 1); }),
            "cached_attention: 4 tokens behind 61 in a cache of 64");
  EXPECT_EQ(error_of([&] { cache.append(exec, narrow, 0, qkv, 1); }),
            "cached_attention: out is f32[4,8], expected f32[4,16] (T, N D, dtype of qkv)");
  EXPECT_EQ(error_of([&] { cache.append(exec, half, 0, qkv, 1); }),
            "cached_attention: out is bf16[4,16], expected f32[4,16] (T, N D, dtype of qkv)");
  Cache other(DType::kBF16, layout, 32);
  EXPECT_EQ(error_of([&] { other.append(exec, out, 0, qkv, 1); }),
            "cached_attention: values is bf16[1,32,16], expected f32[1,32,16] (KV, P, V)");
}

}  // namespace
}  // namespace mantissa
