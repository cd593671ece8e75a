#include "report/verdict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "report/table.h"

namespace mantissa::report {
namespace {

// Standard error of the mean of loss(run) - loss(base) over the last tenth of the steps both have; negative: too few.
double paired_error(const Run& run, const Run& base) {
  std::map<int64_t, double> base_loss;
  for (const StepLine& line : base.metrics.steps)
    if (line.loss) base_loss[line.step] = *line.loss;
  std::vector<double> difference;
  for (const StepLine& line : run.metrics.steps)
    if (const auto at = base_loss.find(line.step); line.loss && at != base_loss.end())
      difference.push_back(*line.loss - at->second);
  const size_t tenth = difference.size() / 10;
  if (tenth < 4) return -1;
  difference.erase(difference.begin(), difference.end() - static_cast<std::ptrdiff_t>(tenth));
  const double n = static_cast<double>(tenth);
  double mean = 0, square = 0;
  for (const double d : difference) mean += d / n;
  for (const double d : difference) square += (d - mean) * (d - mean);
  return std::sqrt(square / (n - 1) / n);
}

std::string range(const RecipeCost& cost) {
  const std::string least = fixed(cost.least, 4, true), most = fixed(cost.most, 4, true);
  return least == most ? least : least + " to " + most;
}

std::string cost_sentence(const RecipeCost& cost, const Noise& noise) {
  std::string text = fmt::format("{}{}: Δ loss {} over {} {}", cost.recipe, cost.emulated ? " (emulated)" : "",
                                 range(cost), cost.rows, cost.rows == 1 ? "row" : "rows");
  if (!noise.known) return text + ".";
  if (cost.inside_noise == cost.rows) return text + ", inside the noise.";
  if (cost.inside_noise == 0) return text + ", outside the noise.";
  return text + fmt::format(", {} of them inside the noise.", cost.inside_noise);
}

double middle(const RecipeCost& cost) { return (cost.least + cost.most) / 2; }

// Which recipes cost the least and the most; those closer than the noise are named together.
std::string ranking(std::vector<RecipeCost> costs, const Noise& noise) {
  if (costs.size() < 2) return {};
  std::stable_sort(costs.begin(), costs.end(),
                   [](const RecipeCost& a, const RecipeCost& b) { return middle(a) < middle(b); });
  const double margin = noise.known ? noise.nats : 0;
  if (middle(costs.back()) - middle(costs.front()) <= margin)
    return fmt::format("What the {} low-precision recipes cost in loss differs by less than the noise.", costs.size());
  std::vector<std::string> least;
  for (const RecipeCost& cost : costs)
    if (middle(cost) - middle(costs.front()) <= margin) least.push_back(cost.recipe);
  return fmt::format("Of the low-precision recipes {} {} the least loss{}, {} the most.", join(least, " and "),
                     least.size() > 1 ? "cost" : "costs",
                     least.size() > 1 ? " (no difference between them beyond the noise)" : "", costs.back().recipe);
}

// "2, 3 and 5"
std::string listed(const std::vector<std::string>& words) {
  if (words.size() < 2) return join(words, "");
  return join({words.begin(), words.end() - 1}, ", ") + " and " + words.back();
}

// Rows of one recipe and weights whose losses agree to the last bit.
std::string equal_rows(const CompareResult& result) {
  std::map<std::tuple<std::string, std::string, double>, size_t> index;
  std::vector<std::vector<std::string>> same;  // row numbers, in the order of their first
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const CompareRow& row = result.rows[i];
    if (!row.ended()) continue;
    const auto [at, fresh] = index.emplace(std::tuple(row.weights, row.recipe, *row.loss), same.size());
    if (fresh) same.emplace_back();
    same[at->second].push_back(std::to_string(i + 1));
  }
  std::vector<std::string> groups;
  for (const auto& rows : same)
    if (rows.size() > 1) groups.push_back(listed(rows));
  if (groups.empty()) return {};
  return "Equal to the last bit, since they compute the same: rows " + join(groups, "; ") + ".";
}

// Which emulated rows lie below the lowest native loss, from which the pick for speed is made.
std::string below_native(const CompareResult& result, const Noise& noise) {
  Number native;
  for (const CompareRow& row : result.rows)
    if (row.ended() && !row.emulated()) native = std::min(native.value_or(*row.loss), *row.loss);
  if (!native) return {};
  const CompareRow* lowest = nullptr;
  int below = 0;
  for (const CompareRow& row : result.rows) {
    if (!row.ended() || !row.emulated() || *row.loss >= *native) continue;
    ++below;
    if (!lowest || *row.loss < *lowest->loss) lowest = &row;
  }
  if (!below) return {};
  const double under = *native - *lowest->loss;
  return fmt::format("{} emulated {} a lower loss than every native row: the lowest is {} at {}, {} below{}.", below,
                     below == 1 ? "row has" : "rows have", row_words(*lowest), fixed(lowest->loss, 4), fixed(under, 4),
                     noise.known && under <= noise.nats ? ", which is inside the noise" : "");
}

std::string entropy_sentence(const ReportData& data, const CompareResult& result) {
  Number entropy;
  for (const Run& run : data.runs) {
    const auto at = run.info.find("data");
    if (at == run.info.end() || !at->is_object()) continue;
    const auto value = at->find("unigram_entropy_nats");
    if (value != at->end() && value->is_number()) entropy = value->get<double>();
  }
  if (!entropy) return {};
  double highest = -1;
  for (const CompareRow& row : result.rows)
    if (row.ended()) highest = std::max(highest, *row.loss);
  if (highest < 0) return {};
  if (result.rows.size() == 1 && highest < *entropy)
    return fmt::format("The loss lies below the text's unigram entropy of {:.3f} nats: the model uses context.",
                       *entropy);
  if (highest < *entropy)
    return fmt::format(
        "Every loss lies below the text's unigram entropy of {:.3f} nats (highest {:.3f}): the models use "
        "context, so recipes can differ.",
        *entropy, highest);
  return fmt::format(
      "The highest loss, {:.3f}, is not below the text's unigram entropy of {:.3f} nats: such a model has "
      "learnt no context yet, and its differences say little.",
      highest, *entropy);
}

std::string pick_headline(const std::vector<Pick>& front, const Noise& noise) {
  const Pick &fast = front.front(), &best = front.back();
  const std::string first =
      fmt::format("For speed, pick {}: {} tok/s", row_words(*fast.row), grouped(fast.row->tokens_per_s));
  if (front.size() == 1)
    return first + ", the fastest native row and, among the native rows, the one with the lowest loss.";
  const double gain = *fast.row->tokens_per_s / *best.row->tokens_per_s - 1;
  const std::string faster = fmt::format("{:.0f}% faster than {}", gain * 100, row_words(*best.row));
  if (noise.known && fast.above <= noise.nats)
    return fmt::format("{}, {}, at a loss that differs by less than the noise ({:+.4f}).", first, faster, fast.above);
  return fmt::format("{}, {}, for {:+.4f} nats of loss. For the lowest loss among native rows, pick the latter.", first,
                     faster, fast.above);
}

std::string run_headline(const Run& run) {
  const CompareRow& row = run.row;
  if (!row.ended()) {
    if (run.metrics.steps.empty()) return run.label + " has not finished a step yet.";
    return fmt::format("{} has not ended: loss {} at step {}.", run.label, fixed(run.metrics.steps.back().loss, 4),
                       run.metrics.steps.back().step);
  }
  std::string text = fmt::format("{} ended at a loss of {}", run.label, fixed(row.loss, 4));
  if (row.eval_loss) text += fmt::format(" ({} on held-out text)", fixed(row.eval_loss, 4));
  if (row.tokens_per_s) text += fmt::format(", at {} tok/s", grouped(row.tokens_per_s));
  return text + (row.emulated() ? " of emulation, which is not the format's speed." : ".");
}

Verdict judge_runs(const ReportData& data) {
  Verdict verdict;
  if (data.runs.empty()) return {"Nothing has run yet.", {}};
  if (data.runs.size() == 1) {
    verdict.headline = run_headline(data.runs.front());
  } else {
    verdict.headline = fmt::format("{} runs side by side.", data.runs.size());
    for (const Run& run : data.runs) verdict.sentences.push_back(run_headline(run));
    verdict.sentences.push_back(
        "They are separate runs: data, seed and steps may differ, so no loss difference is given between them.");
  }
  if (const std::string entropy = entropy_sentence(data, rows_of(data)); !entropy.empty())
    verdict.sentences.push_back(entropy);
  return verdict;
}

}  // namespace

std::string row_words(const CompareRow& row) {
  std::string text = row.recipe;
  if (!row.scope.empty() && row.scope != "none") text += " (" + row.scope + ")";
  return row.weights.empty() ? text : text + " with " + row.weights + " weights";
}

CompareResult rows_of(const ReportData& data) {
  if (data.compare) return *data.compare;
  CompareResult result;
  for (const Run& run : data.runs) result.rows.push_back(run.row);
  result.planned = std::ssize(result.rows);
  return result;
}

Noise estimate_noise(const ReportData& data) {
  Noise noise;
  const CompareResult result = rows_of(data);
  const auto widest = [&](Number CompareRow::*spread, const char* how) {
    for (const CompareRow& row : result.rows)
      if (row.*spread) noise = {.nats = std::max(noise.nats, 2 * *(row.*spread)), .how = how, .known = true};
    return noise.known;
  };
  if (widest(&CompareRow::delta_spread, "twice the largest standard deviation of a paired Δ over seeds")) return noise;
  if (widest(&CompareRow::loss_spread, "twice the largest standard deviation of a loss over seeds")) return noise;
  for (const Run& run : data.runs) {
    const Run* base = baseline_run(data, run);
    const double error = base && run.row.ended() ? paired_error(run, *base) : -1;
    if (error < 0) continue;
    noise.nats = std::max(noise.nats, 2 * error);
    noise.known = true;
  }
  noise.how =
      "twice the largest standard error of the step-by-step difference to the baseline over the last tenth of the "
      "steps; one seed, so another seed may move a difference by more";
  return noise;
}

std::vector<Pick> native_front(const CompareResult& result) {
  std::vector<Pick> native;
  double lowest = 0;
  for (const CompareRow& row : result.rows) {
    if (!row.ended() || row.emulated() || !row.tokens_per_s || !std::isfinite(*row.loss)) continue;
    lowest = native.empty() ? *row.loss : std::min(lowest, *row.loss);
    native.push_back({&row, 0});
  }
  auto beaten = [&](const Pick& pick) {
    return std::any_of(native.begin(), native.end(), [&](const Pick& other) {
      const double speed = *other.row->tokens_per_s, own = *pick.row->tokens_per_s;
      const double loss = *other.row->loss, own_loss = *pick.row->loss;
      if (loss == own_loss) return speed > own || (speed == own && other.row < pick.row);
      return loss < own_loss && speed >= own * (1 - kSpeedTie);
    });
  };
  std::vector<Pick> front;
  for (const Pick& pick : native)
    if (!beaten(pick)) front.push_back({pick.row, *pick.row->loss - lowest});
  std::sort(front.begin(), front.end(),
            [](const Pick& a, const Pick& b) { return *a.row->tokens_per_s > *b.row->tokens_per_s; });
  return front;
}

std::vector<RecipeCost> recipe_costs(const CompareResult& result, const Noise& noise) {
  std::vector<RecipeCost> costs;
  for (const CompareRow& row : result.rows) {
    if (!row.ended() || row.baseline() || !row.delta_loss) continue;
    auto at =
        std::find_if(costs.begin(), costs.end(), [&](const RecipeCost& cost) { return cost.recipe == row.recipe; });
    if (at == costs.end())
      at = costs.insert(at, {.recipe = row.recipe, .least = *row.delta_loss, .most = *row.delta_loss});
    ++at->rows;
    at->inside_noise += noise.known && std::abs(*row.delta_loss) <= noise.nats;
    at->least = std::min(at->least, *row.delta_loss);
    at->most = std::max(at->most, *row.delta_loss);
    at->emulated |= row.emulated();
  }
  return costs;
}

Verdict judge(const ReportData& data) {
  if (!data.compare) return judge_runs(data);
  const CompareResult& result = *data.compare;
  const Noise noise = estimate_noise(data);
  const std::vector<Pick> front = native_front(result);
  const std::vector<RecipeCost> costs = recipe_costs(result, noise);
  Verdict verdict;
  if (result.ended() == 0)
    verdict.headline = "No row has ended yet.";
  else if (front.empty())
    verdict.headline =
        "No native row has ended: the losses show what each recipe costs, and nothing here says which is faster.";
  else
    verdict.headline = pick_headline(front, noise);

  auto say = [&](std::string text) {
    if (!text.empty()) verdict.sentences.push_back(std::move(text));
  };
  if (result.ended() < result.planned)
    say(fmt::format("{} of {} rows have ended; all that follows is about those.", result.ended(), result.planned));
  if (!front.empty()) say(below_native(result, noise));
  say(ranking(costs, noise));
  for (const RecipeCost& cost : costs) say(cost_sentence(cost, noise));
  if (std::any_of(costs.begin(), costs.end(), [](const RecipeCost& cost) { return cost.emulated; }))
    say("Emulated rows compute each format exactly on hardware that lacks it. Their losses count; their speed is the "
        "emulation's, and how fast the format is has to be measured where it is native.");
  if (noise.known && !costs.empty()) say(fmt::format("Noise: ±{:.4f} nats, {}.", noise.nats, noise.how));
  if (!noise.known && !costs.empty())
    say("Noise: not known; repeat the rows over seeds to learn which differences are real.");
  say(equal_rows(result));
  say(entropy_sentence(data, result));
  return verdict;
}

}  // namespace mantissa::report
