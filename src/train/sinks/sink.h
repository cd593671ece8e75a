// Where the facts of a run go: one row of a table for each kind of output.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "train/config.h"
#include "train/events.h"

namespace mantissa {

// Takes every event, in the order in which they happen, and ends with its last copy. What it throws ends the run.
using Sink = std::function<void(const Event&)>;

// What a sink needs so that a run can go on: how much it holds, as JSON of its own, and that on the disk.
struct OpenSink {
  Sink take;
  std::function<Json()> position;
  std::function<void()> sync;
};

struct SinkEntry {
  const char* name;
  // Names that it writes in the run's folder, which a run that begins there anew removes, in this order.
  std::vector<std::string> files;
  // Whether runs of this config have it.
  bool (*wanted)(const TrainConfig& config);
  // For a run into `folder`, where RunFolder::begin() made room, or that goes on from `position`, which is null where
  // it begins. The first event that it takes is RunBegan.
  OpenSink (*open)(const TrainConfig& config, const std::string& folder, const Json& position);
};
const std::vector<SinkEntry>& sink_table();

// The sinks that the config asks for, in the table's order, as one.
class Sinks {
 public:
  // `positions`: what positions() said, or null. A sink that is not in it begins.
  void open(const TrainConfig& config, const std::string& folder, const Json& positions);
  void take(const Event& event) const;
  // By the sinks' names.
  Json positions() const;
  void sync() const;

 private:
  std::vector<std::pair<std::string, OpenSink>> sinks_;
};

}  // namespace mantissa
