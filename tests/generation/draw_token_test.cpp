#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "generation/generator.h"

namespace mantissa {
namespace {

const std::vector<float> kLogits = {1.0f, -0.5f, 2.0f, 0.25f, -3.0f, 1.5f, 0.0f, 1.0f};

std::map<int32_t, double> shares(const std::vector<float>& logits, double temperature, const std::set<int32_t>& kept) {
  std::map<int32_t, double> p;
  double sum = 0;
  for (int32_t id : kept) sum += p[id] = std::exp(double{logits[static_cast<size_t>(id)]} / temperature);
  for (auto& [id, share] : p) share /= sum;
  return p;
}

// Pearson's statistic of `n` draws against the shares, in standard deviations above its mean (the number of degrees of
// freedom k has mean k and variance 2 k).
double deviations(const SamplingSettings& settings, const std::map<int32_t, double>& expected, int n) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[draw_token(kLogits, settings, static_cast<uint64_t>(i))];
  double statistic = 0;
  for (const auto& [id, share] : expected) {
    const double want = share * n, found = counts[id];
    statistic += (found - want) * (found - want) / want;
  }
  for (const auto& [id, count] : counts) EXPECT_TRUE(expected.contains(id)) << id << " was drawn " << count << " times";
  const auto k = static_cast<double>(expected.size() - 1);
  return (statistic - k) / std::sqrt(2 * k);
}

const std::set<int32_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(DrawToken, FollowsTheDistribution) {
  constexpr int kDraws = 40000;
  EXPECT_LT(deviations({.seed = 1}, shares(kLogits, 1, kAll), kDraws), 4);
  EXPECT_LT(deviations({.temperature = 0.6, .seed = 2}, shares(kLogits, 0.6, kAll), kDraws), 4);
  EXPECT_LT(deviations({.temperature = 3, .seed = 3}, shares(kLogits, 3, kAll), kDraws), 4);
  // 2, 5, then 0 before 7, which is as likely.
  EXPECT_LT(deviations({.top_k = 3, .seed = 4}, shares(kLogits, 1, {2, 5, 0}), kDraws), 4);
  // Shares of 2, 5, 0, 7: 0.38, 0.23, 0.14, 0.14; 0.7 takes three, 0.8 four.
  EXPECT_LT(deviations({.top_p = 0.7, .seed = 5}, shares(kLogits, 1, {2, 5, 0}), kDraws), 4);
  EXPECT_LT(deviations({.top_p = 0.8, .seed = 6}, shares(kLogits, 1, {2, 5, 0, 7}), kDraws), 4);
  // Of the top 3, the shares of 2 and 5 are 0.51 and 0.31.
  EXPECT_LT(deviations({.top_p = 0.8, .top_k = 3, .seed = 7}, shares(kLogits, 1, {2, 5}), kDraws), 4);
  // The statistic sees a distribution that is another one.
  EXPECT_GT(deviations({.temperature = 1.1, .seed = 8}, shares(kLogits, 1, kAll), kDraws), 4);
}

std::set<int32_t> drawn(const std::vector<float>& logits, const SamplingSettings& settings) {
  std::set<int32_t> ids;
  for (uint64_t i = 0; i < 400; ++i) ids.insert(draw_token(logits, settings, i));
  return ids;
}

// Equal weights make the sums of shares exact.
TEST(DrawToken, TopPIsTheSmallestSetThatReachesIt) {
  const std::vector<float> equal(4, 0.5f);
  const std::set<int32_t> one = {0}, two = {0, 1}, three = {0, 1, 2}, all = {0, 1, 2, 3};
  EXPECT_EQ(drawn(equal, {.top_p = 0}), one);
  EXPECT_EQ(drawn(equal, {.top_p = 0.25}), one);
  EXPECT_EQ(drawn(equal, {.top_p = 0.5}), two);
  EXPECT_EQ(drawn(equal, {.top_p = 0.51}), three);
  EXPECT_EQ(drawn(equal, {.top_p = 0.75}), three);
  EXPECT_EQ(drawn(equal, {.top_p = 0.76}), all);
  EXPECT_EQ(drawn(equal, {.top_p = 1}), all);
}

TEST(DrawToken, TiesGoToTheSmallestIds) {
  const std::vector<float> logits = {1, 3, 3, 0, 3};
  EXPECT_EQ(draw_token(logits, {.temperature = 0}, 0), 1);
  EXPECT_EQ(drawn(logits, {.top_k = 1}), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(logits, {.top_k = 2}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(drawn(logits, {.top_k = 100}), (std::set<int32_t>{0, 1, 2, 3, 4}));
  // Logits one ulp apart, whose weights are the same number: the greater one comes first.
  const std::vector<float> close = {1.0f, std::nextafter(1.0f, 2.0f)};
  EXPECT_EQ(drawn(close, {.temperature = 1e5, .top_k = 1}), (std::set<int32_t>{1}));
}

TEST(DrawToken, SeedAndIndexDecide) {
  std::vector<int32_t> first, again, other;
  for (uint64_t i = 0; i < 64; ++i) {
    first.push_back(draw_token(kLogits, {.seed = 9}, i));
    again.push_back(draw_token(kLogits, {.seed = 9}, i));
    other.push_back(draw_token(kLogits, {.seed = 10}, i));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  EXPECT_GT(std::set<int32_t>(first.begin(), first.end()).size(), 3u);
}

TEST(DrawToken, ExtremesStayInRange) {
  EXPECT_EQ(drawn({-3e38f, 3e38f, 0}, {.temperature = 1e-3}), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn({-INFINITY, 0, 0}, {}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(drawn({7}, {.top_p = 0.1}), (std::set<int32_t>{0}));
}

TEST(DrawToken, RefusesWhatIsNotFinite) {
  const auto code_of = [](const std::vector<float>& logits, const SamplingSettings& settings) {
    try {
      draw_token(logits, settings, 0);
    } catch (const Error& error) {
      return std::pair(error.code(), std::string(error.what()));
    }
    return std::pair(Exit::kDone, std::string());
  };
  EXPECT_EQ(code_of({0, NAN, 1}, {}), std::pair(Exit::kNonFinite, std::string("the logit of token 1 is nan")));
  EXPECT_EQ(code_of({0, NAN, 1}, {.temperature = 0}).first, Exit::kNonFinite);
  EXPECT_EQ(code_of({INFINITY, 0}, {}).first, Exit::kNonFinite);
  EXPECT_EQ(code_of({-INFINITY, -INFINITY}, {}).first, Exit::kNonFinite);
  EXPECT_EQ(code_of({0, 1}, {.temperature = -1}).first, Exit::kInternal);
  EXPECT_EQ(code_of({0, 1}, {.top_p = 1.5}).first, Exit::kInternal);
}

}  // namespace
}  // namespace mantissa
