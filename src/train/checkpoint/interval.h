// How often a run saves: train.checkpoint_every.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa {

struct CheckpointInterval {
  int64_t steps = 0;   // 0: by time
  double seconds = 0;  // 0: by steps; both 0: never

  bool off() const { return steps == 0 && seconds == 0; }
};

// "500": steps; "90s", "30m", "1h": time; "0": never. Exit::kUsage names `key`.
CheckpointInterval parse_checkpoint_interval(const std::string& text, const char* key);

}  // namespace mantissa
