#include "train/sinks/run_log.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "base/line_file.h"

namespace mantissa {
namespace {

Json to_json(const StepReport& r) {
  Json line = {{"step", r.step},
               {"tokens", r.tokens},
               {"seconds", r.seconds},
               {"loss", finite_or_null(r.loss)},
               {"grad_norm", finite_or_null(r.grad_norm)},
               {"lr", r.lr},
               {"tokens_per_s", r.tokens_per_s},
               {"mfu", r.mfu},
               {"data_wait_s", r.data_wait_s}};
  if (r.skipped) line["skipped"] = true;
  return line;
}

Json to_json(const EvalReport& r) {
  return {{"step", r.step}, {"tokens", r.tokens}, {"seconds", r.seconds}, {"eval_loss", finite_or_null(r.loss)}};
}

Json to_json(const QuantizationReport& r) {
  Json list = Json::array();
  for (const TensorError& e : r.errors)
    list.push_back({{"layer", e.layer},
                    {"tensor", e.tensor},
                    {"amax", finite_or_null(e.amax)},
                    {"scale", finite_or_null(e.scale)},
                    {"snr_db", finite_or_null(e.snr_db)},
                    {"saturated", e.saturated_share},
                    {"flushed", e.flushed_share}});
  return {{"step", r.step}, {"quantization", std::move(list)}};
}

Json to_json(const SampleReport& r) {
  return {{"step", r.step}, {"prompt", r.prompt}, {"text", r.text}, {"tokens", r.tokens}, {"stop", r.stop}};
}

constexpr const char *kMetrics = "metrics.jsonl", *kSamples = "samples.jsonl", *kNonFinite = "nonfinite.json";

class RunLog {
 public:
  RunLog(const std::string& folder, const Json& position) : folder_(folder) {
    const auto behind = [&](const char* name) {
      return member(position, name, "the run log's position").get<int64_t>();
    };
    if (position.is_null()) {
      metrics_.emplace(file(kMetrics));
      return;
    }
    metrics_.emplace(file(kMetrics), behind(kMetrics));
    if (const int64_t size = behind(kSamples); size > 0 || exists(file(kSamples)))
      samples_.emplace(file(kSamples), size);
  }

  Json position() const { return {{kMetrics, metrics_->size()}, {kSamples, samples_ ? samples_->size() : 0}}; }
  void sync() {
    metrics_->sync();
    if (samples_) samples_->sync();
  }

  void take(const RunBegan& begun) { write_atomic(file("config.yaml"), begun.config); }
  void take(const RunInfo& info) { write_atomic(file("run.json"), info.json->dump(2) + "\n"); }
  void take(const StepReport& r) { metrics_->append(to_json(r).dump()); }
  void take(const EvalReport& r) { metrics_->append(to_json(r).dump()); }
  void take(const QuantizationReport& r) { metrics_->append(to_json(r).dump()); }
  void take(const NonFinite& n) { write_atomic(file(kNonFinite), n.record->dump(1) + "\n"); }
  void take(const SampleReport& r) {
    if (!samples_) samples_.emplace(file(kSamples));
    samples_->append(to_json(r).dump());
  }
  // The lines are on the disk before result.json says that the run has ended.
  void take(const RunResult& result) {
    metrics_->finish();
    if (samples_) samples_->finish();
    write_atomic(file("result.json"), to_json(result).dump(2) + "\n");
  }
  // Times of the start, saves and warnings: the console's.
  void take(const Resumed&) {}
  void take(const CheckpointSaved&) {}
  void take(const WeightsLoaded&) {}
  void take(const RunReady&) {}
  void take(const FirstStep&) {}
  void take(const Warning&) {}

 private:
  std::string file(const char* name) const { return join_path(folder_, name); }

  std::string folder_;
  std::optional<LineFile> metrics_;
  std::optional<LineFile> samples_;
};

}  // namespace

SinkEntry run_log_entry() {
  // result.json goes first: what is left after an interruption never looks finished.
  return {.name = "run log",
          .files = {"result.json", "metrics.jsonl", "samples.jsonl", kNonFinite, "run.json", "config.yaml"},
          .wanted = [](const TrainConfig&) { return true; },
          .open = [](const TrainConfig&, const std::string& folder, const Json& position) -> OpenSink {
            const auto log = std::make_shared<RunLog>(folder, position);
            return {
                .take = [log](const Event& event) { std::visit([&](const auto& fact) { log->take(fact); }, event); },
                .position = [log] { return log->position(); },
                .sync = [log] { log->sync(); }};
          }};
}

Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json to_json(const RunResult& r) {
  return {{"loss", finite_or_null(r.loss)},
          {"eval_loss", finite_or_null(r.eval_loss)},
          {"tokens_per_s", r.tokens_per_s},
          {"mfu", r.mfu},
          {"nanogpt_legacy_v1", r.nanogpt_legacy_v1},
          {"combined_formula_v2", r.combined_formula_v2},
          {"component_summation_v2025", r.component_summation_v2025},
          {"memory_pct", r.memory_pct},
          {"memory_planned_bytes", r.memory_planned_bytes},
          {"memory_measured_bytes", r.memory_measured_bytes > 0 ? Json(r.memory_measured_bytes) : Json(nullptr)},
          {"first_step_seconds", r.first_step_seconds},
          {"path", r.path},
          {"seconds", r.seconds},
          {"steps", r.steps},
          {"skipped", r.skipped},
          {"tokens", r.tokens}};
}

}  // namespace mantissa
