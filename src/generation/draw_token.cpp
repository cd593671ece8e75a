#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "generation/generator.h"

namespace mantissa {
namespace {

constexpr uint32_t kDrawStream = 0xffffffffu;  // beyond the tensors of any model

// Uniform in [0, 1), 53 bits.
double uniform(int64_t seed, uint64_t index) {
  const Random4 r = draw({.seed = static_cast<uint64_t>(seed), .tensor = kDrawStream, .form = DrawForm::kOrder}, index);
  return static_cast<double>((uint64_t{r.x[0]} << 21) ^ (r.x[1] >> 11)) * 0x1p-53;
}

struct Candidate {
  double weight;  // e^((logit - max) / temperature)
  float logit;
  int32_t id;
};

// More likely, and of equals the smaller id. Logits tell apart what weights round to one value.
bool before(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// The smallest set, most likely first, whose share of all weights reaches top_p.
void keep_nucleus(std::vector<Candidate>& all, double top_p) {
  const double wanted = top_p * sum_of(all);
  const auto after = [](const Candidate& a, const Candidate& b) { return before(b, a); };
  std::make_heap(all.begin(), all.end(), after);
  std::vector<Candidate> kept;
  for (double sum = 0; sum < wanted && !all.empty(); sum += kept.back().weight) {
    std::pop_heap(all.begin(), all.end(), after);
    kept.push_back(all.back());
    all.pop_back();
  }
  all = std::move(kept);
}

}  // namespace

void SamplingSettings::describe(config::Fields& f) {
  f.number("temperature", temperature, "logits are divided by it; 0: the most likely token", {.min = 0, .max = 1e6});
  f.integer("top_k", top_k, "draw from the k most likely tokens; 0: all", {.min = 0, .max = 1 << 30});
  f.number("top_p", top_p, "of those, from the smallest set with this probability; 1: all", {.min = 0, .max = 1});
  f.integer("seed", seed, "of the draws", {.min = 0});
}

int32_t draw_token(std::span<const float> logits, const SamplingSettings& s, uint64_t index) {
  check(!logits.empty(), "draw_token: no logits");
  check(s.temperature >= 0 && s.top_p >= 0 && s.top_p <= 1 && s.top_k >= 0,
        "draw_token: temperature {}, top_p {}, top_k {}: expected 0 or more, 0 to 1, 0 or more", s.temperature, s.top_p,
        s.top_k);
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < INFINITY)) fail(Exit::kNonFinite, "the logit of token {} is {}", i, logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (s.temperature == 0) return static_cast<int32_t>(best);
  if (logits[best] == -INFINITY) fail(Exit::kNonFinite, "all {} logits are -inf", logits.size());

  std::vector<Candidate> all(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    all[i] = {std::exp((double{logits[i]} - double{logits[best]}) / s.temperature), logits[i], static_cast<int32_t>(i)};
  if (s.top_k > 0 && s.top_k < static_cast<int64_t>(all.size())) {
    std::nth_element(all.begin(), all.begin() + (s.top_k - 1), all.end(), before);
    all.resize(static_cast<size_t>(s.top_k));
    std::sort(all.begin(), all.end(), before);
  }
  if (s.top_p < 1) keep_nucleus(all, s.top_p);
  if (all.empty()) return static_cast<int32_t>(best);  // top_p 0
  // A token's share of the line is its weight; the draw is a point on it.
  double left = uniform(s.seed, index) * sum_of(all);
  int32_t last = all.front().id;
  for (const Candidate& c : all) {
    if (c.weight <= 0) continue;
    last = c.id;
    if ((left -= c.weight) < 0) return c.id;
  }
  return last;
}

}  // namespace mantissa
