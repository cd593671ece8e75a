// From a config file and its overrides to a config that is ready to use.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace mantissa {

struct ReadOptions {
  bool print = false;     // the config goes to stdout with the origin of each value
  bool planning = false;  // model.init may be absent from this disk where the config itself gives the sizes
};

// Reads CONFIG with overrides and resolves it. Exit::kInput for a relative path that is there beside the config and not
// in the working directory; a notice on stderr where train.steps or train.tokens override train.epochs. Sizes beside a
// model.init are held to the folder's config.json: Exit::kUsage names the first key that differs and where it was
// given.
TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides,
                              const ReadOptions& options = {});

}  // namespace mantissa
