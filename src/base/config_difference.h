// Where two dumps of a config differ, for people.
#pragma once

#include <string>
#include <vector>

namespace mantissa::config {

// A key that two texts of dump() give different values: "optimizer.lr", "0.01", "0.003"; a value is "nothing" where
// that text has no such key. `key` is "" where they agree.
struct Difference {
  std::string key, first, second;
};

// The first such key in the order of `first`, then of `second`, that is none of `passed_over`. Exit::kUsage for what is
// no YAML.
Difference first_difference(const std::string& first, const std::string& second,
                            const std::vector<std::string>& passed_over = {});

}  // namespace mantissa::config
