// Command lines of verbs, on CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/config.h"

namespace mantissa {

// Parses `args` into what `app` binds. `--help` prints the help and returns false. Errors are Exit::kUsage and name the
// verb: an unknown flag with the nearest one, a missing or ill-typed value, an argument too many.
bool parse_flags(CLI::App& app, const std::vector<std::string>& args);

// Config overrides are told from flags by the dot in their key: --section.key=value, --section.key value. They leave
// `args` and come back as "section.key=value".
std::vector<std::string> take_overrides(std::vector<std::string>& args);

// Every field that `describe` names becomes a flag of `app`, spelled --field_name or --field-name. `describe`'s targets
// must outlive the parse.
void add_flags(CLI::App& app, const std::function<void(config::Fields&)>& describe);

}  // namespace mantissa
