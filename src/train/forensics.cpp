#include "train/forensics.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ops/elementwise.h"

namespace mantissa {
namespace {

constexpr int64_t kMostIds = 65'536;  // tokens of a step whose ids are written out; rows name those of more

// JSON has no NaN or Inf, and which of them it was counts here.
Json value_of(double x) { return std::isfinite(x) ? Json(x) : Json(std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"); }

Json about(Exec& exec, ConstTensor x) {
  const int64_t at = first_nonfinite(exec, x);
  return {{"norm", value_of(std::sqrt(sum_of_squares(exec, x)))},
          {"first_nonfinite", at < 0 ? Json(nullptr) : Json(at)}};
}

Json parameters(Engine& engine) {
  Json list = Json::array();
  const ParamStore& params = engine.params();
  for (int id = 0; id < params.size(); ++id)
    list.push_back({{"name", params.spec(id).name},
                    {"weight", about(engine.exec(), params.weight(id))},
                    {"gradient", about(engine.exec(), params.grad(id))}});
  return list;
}

// Amax histories and scales: the range of each.
Json scaling(Engine& engine) {
  Json list = Json::array();
  engine.visit_state([&](const StateTensor& state) {
    if (!state.name.starts_with("scaling/") || state.tensor.dtype != DType::kF32) return;
    std::vector<float> values(static_cast<size_t>(state.tensor.count()));
    read_state(state, reinterpret_cast<std::byte*>(values.data()));
    if (values.empty()) return;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    list.push_back({{"name", state.name}, {"min", value_of(*least)}, {"max", value_of(*most)}});
  });
  return list;
}

Json micro_batches(const StepBatches& batches) {
  int64_t tokens = 0;
  for (const Batch& b : batches.micro) tokens += std::ssize(b.ids);
  Json list = Json::array();
  for (const Batch& b : batches.micro)
    list.push_back({{"rows", b.rows},
                    {"documents", std::ssize(b.segments) - 1},
                    {"labels", b.valid_tokens},
                    {"ids", tokens <= kMostIds ? Json(b.ids) : Json(nullptr)}});
  return list;
}

}  // namespace

Json nonfinite_record(Engine& engine, const StepBatches& batches, int64_t step, int64_t first_row, double loss,
                      const std::string& what) {
  return {{"step", step},
          {"what", what},
          {"loss", value_of(loss)},
          {"first_row", first_row},
          {"micro_batches", micro_batches(batches)},
          {"parameters", parameters(engine)},
          {"scaling", scaling(engine)}};
}

}  // namespace mantissa
