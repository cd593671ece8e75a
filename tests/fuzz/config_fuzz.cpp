// YAML configs; the section data stands for all of them.
#include "data/data_config.h"
#include "tests/fuzz/fuzz.h"

using namespace mantissa;

MANTISSA_FUZZ(input, {
  const config::Source source = config::Source::from_text(std::string(input), "input");
  DataConfig data;
  source.read([&data](config::Fields& f) { f.section("data", [&data](config::Fields& g) { data.describe(g); }); });
})
