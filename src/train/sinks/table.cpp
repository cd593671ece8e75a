#include "train/sinks/run_log.h"
#include "train/sinks/sink.h"

namespace mantissa {

const std::vector<SinkEntry>& sink_table() {
  static const std::vector<SinkEntry> table = {run_log_entry()};
  return table;
}

std::vector<Sink> open_sinks(const TrainConfig& config, const std::string& folder) {
  std::vector<Sink> sinks;
  for (const SinkEntry& entry : sink_table())
    if (entry.wanted(config)) sinks.push_back(entry.open(config, folder));
  return sinks;
}

}  // namespace mantissa
