#include "report/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace mantissa::report {
namespace {

template <class Get>
Json column(const std::vector<StepLine>& lines, const std::vector<size_t>& kept, Get&& get) {
  Json out = Json::array();
  for (const size_t i : kept) out.push_back(rounded(get(lines[i])));
  return out;
}

Json whole(double value) { return std::abs(value) < 9e15 ? Json(std::llround(value)) : Json(value); }

Json eval_json(const std::vector<EvalLine>& evals) {
  Json step = Json::array(), tokens = Json::array(), seconds = Json::array(), loss = Json::array();
  const size_t stride = evals.size() / kMaxPoints + 1;
  for (size_t i = 0; i < evals.size(); ++i) {
    if (i % stride != 0 && i + 1 != evals.size()) continue;
    step.push_back(evals[i].step);
    tokens.push_back(whole(evals[i].tokens));
    seconds.push_back(rounded(evals[i].seconds));
    loss.push_back(rounded(evals[i].eval_loss));
  }
  return {{"step", step}, {"tokens", tokens}, {"seconds", seconds}, {"loss", loss}};
}

// At most `limit` (2 or more) evenly spaced ones of `steps`, the last included.
std::vector<int64_t> some_steps(const std::set<int64_t>& steps, size_t limit) {
  std::vector<int64_t> all(steps.begin(), steps.end()), kept;
  if (all.size() <= limit) return all;
  for (size_t i = 0; i < limit; ++i) kept.push_back(all[i * (all.size() - 1) / (limit - 1)]);
  return kept;
}

// Names in the order in which they come, up to `limit`.
class Names {
 public:
  explicit Names(size_t limit) : limit_(limit) {}
  void add(const std::string& name) {
    if (list_.size() < limit_ && index_.emplace(name, list_.size()).second) list_.push_back(name);
  }
  // list().size() for a name that is not among them.
  size_t index(const std::string& name) const {
    const auto at = index_.find(name);
    return at == index_.end() ? list_.size() : at->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  size_t limit_;
  std::vector<std::string> list_;
  std::unordered_map<std::string, size_t> index_;
};

Json quantization_json(const std::vector<QuantLine>& lines) {
  if (lines.empty()) return nullptr;
  Names layer_names(kMaxQuantLayers), tensor_names(3);  // input, weight, grad
  std::set<int64_t> seen;
  for (const QuantLine& line : lines) {
    seen.insert(line.step);
    layer_names.add(line.layer);
    tensor_names.add(line.tensor);
  }
  const std::vector<std::string>&layers = layer_names.list(), &tensors = tensor_names.list();
  const size_t room = kMaxQuantCells / (layers.size() * tensors.size());
  const std::vector<int64_t> steps = some_steps(seen, std::clamp<size_t>(room, 2, kMaxQuantSteps));
  const size_t cells = steps.size() * layers.size() * tensors.size();
  std::vector<Json> snr(cells), saturated(cells), flushed(cells);
  for (const QuantLine& line : lines) {
    const auto at = std::lower_bound(steps.begin(), steps.end(), line.step);
    if (at == steps.end() || *at != line.step) continue;
    const size_t layer = layer_names.index(line.layer), tensor = tensor_names.index(line.tensor);
    if (layer == layers.size() || tensor == tensors.size()) continue;
    const size_t cell = (static_cast<size_t>(at - steps.begin()) * layers.size() + layer) * tensors.size() + tensor;
    snr[cell] = line.snr_db ? rounded(line.snr_db, 4) : Json("exact");
    saturated[cell] = rounded(line.saturated, 3);
    flushed[cell] = rounded(line.flushed, 3);
  }
  return {{"steps", steps}, {"recorded", seen.size()}, {"layers", layers},  {"tensors", tensors},
          {"snr_db", snr},  {"saturated", saturated},  {"flushed", flushed}};
}

// Loss less the baseline's at the same step; a kept point stands for the mean since the kept point before it, so that
// thinning out does not bend the difference.
Json delta_json(const std::vector<StepLine>& lines, const std::vector<size_t>& kept, const Run* base) {
  if (!base) return nullptr;
  std::map<int64_t, double> base_loss;
  for (const StepLine& line : base->metrics.steps)
    if (line.loss) base_loss[line.step] = *line.loss;
  Json out = Json::array();
  size_t next = 0;
  for (const size_t last : kept) {
    double sum = 0;
    int count = 0;
    for (; next <= last; ++next) {
      const auto at = base_loss.find(lines[next].step);
      if (at == base_loss.end() || !lines[next].loss) continue;
      sum += *lines[next].loss - at->second;
      ++count;
    }
    out.push_back(count ? rounded(sum / count, 4) : Json());
  }
  return out;
}

Json series_json(const Run& run, const Run* base) {
  const std::vector<StepLine>& lines = run.metrics.steps;
  const std::vector<size_t> kept = thinned(lines);
  Json step = Json::array(), tokens = Json::array();
  for (const size_t i : kept) {
    step.push_back(lines[i].step);
    tokens.push_back(whole(lines[i].tokens));
  }
  return {{"label", run.label},
          {"recipe", run.row.recipe},
          {"weights", run.row.weights},
          {"scope", run.row.scope},
          {"path", run.row.path},
          {"baseline", run.row.baseline()},
          {"recorded", lines.size()},
          {"step", step},
          {"tokens", tokens},
          {"seconds", column(lines, kept, [](const StepLine& l) { return Number(l.seconds); })},
          {"loss", column(lines, kept, [](const StepLine& l) { return l.loss; })},
          {"delta", delta_json(lines, kept, base)},
          {"grad_norm", column(lines, kept, [](const StepLine& l) { return l.grad_norm; })},
          {"lr", column(lines, kept, [](const StepLine& l) { return l.lr; })},
          {"tokens_per_s", column(lines, kept, [](const StepLine& l) { return l.tokens_per_s; })},
          {"eval", eval_json(run.metrics.evals)},
          {"quantization", quantization_json(run.metrics.quantization)}};
}

}  // namespace

Json rounded(const Number& value, int digits) {
  if (!value || !std::isfinite(*value)) return nullptr;
  const double figure = std::strtod(fmt::format("{:.{}g}", *value, digits).c_str(), nullptr);
  if (figure == std::floor(figure) && std::abs(figure) < 1e15) return static_cast<int64_t>(figure);
  return figure;
}

std::vector<size_t> thinned(const std::vector<StepLine>& lines, size_t limit) {
  std::vector<size_t> kept;
  if (lines.size() <= limit) {
    for (size_t i = 0; i < lines.size(); ++i) kept.push_back(i);
    return kept;
  }
  const size_t stretches = std::max<size_t>(1, (limit - 2) / 4);
  std::set<size_t> chosen = {0, lines.size() - 1};
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = s * lines.size() / stretches, end = (s + 1) * lines.size() / stretches;
    size_t low = begin, high = begin, gradient = begin, slow = begin;
    for (size_t i = begin; i < end; ++i) {
      if (lines[i].loss < lines[low].loss) low = i;
      if (lines[i].loss > lines[high].loss) high = i;
      if (lines[i].grad_norm > lines[gradient].grad_norm) gradient = i;
      if (lines[i].tokens_per_s < lines[slow].tokens_per_s) slow = i;
    }
    chosen.insert({low, high, gradient, slow});
  }
  return {chosen.begin(), chosen.end()};
}

Json page_data(const ReportData& data) {
  Json series = Json::array();
  for (const Run& run : data.runs) series.push_back(series_json(run, data.compare ? baseline_run(data, run) : nullptr));
  return {{"compare", data.compare.has_value()}, {"series", series}};
}

}  // namespace mantissa::report
