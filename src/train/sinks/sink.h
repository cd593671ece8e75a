// Where the facts of a run go: one row of a table for each kind of output.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/events.h"

namespace mantissa {

// Takes every event, in the order in which they happen, and ends with its last copy. What it throws ends the run.
using Sink = std::function<void(const Event&)>;

struct SinkEntry {
  const char* name;
  // Whether runs of this config have it.
  bool (*wanted)(const TrainConfig& config);
  // For a run into `folder`, where RunFolder::begin() made room. The first event that it takes is RunBegan.
  Sink (*open)(const TrainConfig& config, const std::string& folder);
};
const std::vector<SinkEntry>& sink_table();

// The sinks that the config asks for, in the table's order.
std::vector<Sink> open_sinks(const TrainConfig& config, const std::string& folder);

}  // namespace mantissa
