#include "train/progress.h"

#include <nlohmann/json.hpp>

namespace mantissa {
namespace {

template <class Some, class Field>
void each_field(Some& p, const Field& field) {
  field("step", p.step);
  field("tokens", p.tokens);
  field("rows", p.rows);
  field("seconds", p.seconds);
  field("run_seconds", p.run_seconds);
  field("owes", p.owes);
  field("eval_loss", p.eval_loss);
  field("best_loss", p.best_loss);
  field("best_step", p.best_step);
  field("tail_loss", p.tail_loss);
  field("tail_steps", p.tail_steps);
  field("steady_seconds", p.steady_seconds);
  field("steady_steps", p.steady_steps);
  field("unmoved", p.unmoved);
  field("idle_steps", p.idle_steps);
  field("amax_steps", p.amax_steps);
  field("skipped", p.skipped);
  field("skipped_in_a_row", p.skipped_in_a_row);
  field("first_step_seconds", p.first_step_seconds);
}

}  // namespace

Json to_json(const Progress& progress) {
  Json json = Json::object();
  // A double is printed with the digits that give it back.
  each_field(progress, [&](const char* key, auto value) {
    json[key] = std::isfinite(static_cast<double>(value)) ? Json(value) : Json(nullptr);
  });
  return json;
}

Progress read_progress(const Json& json, const std::string& name) {
  Progress progress;
  each_field(progress, [&](const char* key, auto& value) {
    const Json& found = member(json, key, name);
    const auto refuse = [&](const char* expected) {
      fail(Exit::kInput, "{}: {} is {}, expected {}", name, key, found.dump(), expected);
    };
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(value)>, int64_t>) {
      if (!found.is_number_integer() || found.get<int64_t>() < 0) refuse("a number of 0 or more");
      value = found.get<int64_t>();
    } else {
      if (!found.is_number() && !found.is_null()) refuse("a number");
      value = found.is_null() ? NAN : found.get<double>();
    }
  });
  return progress;
}

}  // namespace mantissa
