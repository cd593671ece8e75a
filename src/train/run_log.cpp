#include "train/run_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "train/trainer.h"

namespace mantissa {

Json finite_or_null(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

RunLog::RunLog(const std::string& folder) : folder_(folder), metrics_(join_path(folder, "metrics.jsonl")) {}

void RunLog::write_config(const std::string& yaml) { write_atomic(join_path(folder_, "config.yaml"), yaml); }
void RunLog::write_info(const Json& info) { write_atomic(join_path(folder_, "run.json"), info.dump(2) + "\n"); }

void RunLog::line(const Json& json) { metrics_.append(json.dump()); }

void RunLog::sample(const SampleReport& r) {
  if (!samples_) samples_.emplace(join_path(folder_, "samples.jsonl"));
  const Json json = {{"step", r.step}, {"prompt", r.prompt}, {"text", r.text}, {"tokens", r.tokens}, {"stop", r.stop}};
  samples_->append(json.dump());
}

void RunLog::step(const StepReport& r) {
  line({{"step", r.step},
        {"tokens", r.tokens},
        {"seconds", r.seconds},
        {"loss", finite_or_null(r.loss)},
        {"grad_norm", finite_or_null(r.grad_norm)},
        {"lr", r.lr},
        {"tokens_per_s", r.tokens_per_s},
        {"mfu", r.mfu},
        {"data_wait_s", r.data_wait_s}});
}

void RunLog::evaluation(const EvalReport& r) {
  line({{"step", r.step}, {"tokens", r.tokens}, {"seconds", r.seconds}, {"eval_loss", finite_or_null(r.loss)}});
}

void RunLog::quantization(int64_t step, const std::vector<TensorError>& errors) {
  if (errors.empty()) return;
  Json list = Json::array();
  for (const TensorError& e : errors)
    list.push_back({{"layer", e.layer},
                    {"tensor", e.tensor},
                    {"amax", finite_or_null(e.amax)},
                    {"scale", finite_or_null(e.scale)},
                    {"snr_db", finite_or_null(e.snr_db)},
                    {"saturated", e.saturated_share},
                    {"flushed", e.flushed_share}});
  line({{"step", step}, {"quantization", std::move(list)}});
}

void RunLog::finish(const RunResult& result) {
  metrics_.finish();
  if (samples_) samples_->finish();
  write_atomic(join_path(folder_, "result.json"), to_json(result).dump(2) + "\n");
}

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
          {"tokens", r.tokens}};
}

}  // namespace mantissa
