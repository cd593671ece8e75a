// JSON of outside files, of which indexes, config.json and manifests are read.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  const Json value = parse_json(input, "input");
  if (parse_json(value.dump(), "again") != value) std::abort();
})
