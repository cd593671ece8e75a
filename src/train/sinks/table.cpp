#include <nlohmann/json.hpp>

#include "train/sinks/run_log.h"
#include "train/sinks/sink.h"

namespace mantissa {

const std::vector<SinkEntry>& sink_table() {
  static const std::vector<SinkEntry> table = {run_log_entry()};
  return table;
}

void Sinks::open(const TrainConfig& config, const std::string& folder, const Json& positions) {
  for (const SinkEntry& entry : sink_table())
    if (entry.wanted(config))
      sinks_.emplace_back(
          entry.name, entry.open(config, folder, positions.is_object() ? positions.value(entry.name, Json()) : Json()));
}

void Sinks::take(const Event& event) const {
  for (const auto& [name, sink] : sinks_) sink.take(event);
}

Json Sinks::positions() const {
  Json all = Json::object();
  for (const auto& [name, sink] : sinks_) all[name] = sink.position();
  return all;
}

void Sinks::sync() const {
  for (const auto& [name, sink] : sinks_) sink.sync();
}

}  // namespace mantissa
