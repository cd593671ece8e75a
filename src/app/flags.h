// Command lines of verbs. CLI11 parses them and stands in flags.cpp alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mantissa {

// What is asked of an option that was declared. Each returns itself.
class FlagRules {
 public:
  explicit FlagRules(CLI::Option* option) : option_(option) {}

  FlagRules& required();
  FlagRules& show_default();  // the value before the parse, in the help
  FlagRules& one_of(std::vector<std::string> values);
  FlagRules& within(int64_t min, int64_t max);
  FlagRules& between(double min, double max);
  FlagRules& not_negative();
  // `complaint` says what is wrong with a text, or "".
  FlagRules& check(std::function<std::string(const std::string&)> complaint);
  FlagRules& comma_separated();
  FlagRules& values(int count);  // so many, each time that it is given
  FlagRules& one_each();         // of a list: one value each time that it is given

 private:
  CLI::Option* option_;
};

// The flags and arguments of one verb; targets must outlive the parse.
class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& verb);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // "--name", or "name" for an argument by its place. A list takes all values up to the next flag.
  FlagRules option(const std::string& name, std::string& target, const std::string& help);
  FlagRules option(const std::string& name, int64_t& target, const std::string& help);
  FlagRules option(const std::string& name, uint64_t& target, const std::string& help);
  FlagRules option(const std::string& name, double& target, const std::string& help);
  FlagRules option(const std::string& name, std::vector<std::string>& target, const std::string& help);
  FlagRules option(const std::string& name, std::vector<int64_t>& target, const std::string& help);
  FlagRules option(const std::string& name, std::vector<double>& target, const std::string& help);
  void flag(const std::string& name, bool& target, const std::string& help);
  // Every field that `describe` names becomes a flag, spelled --field_name or --field-name.
  void fields(const std::function<void(config::Fields&)>& describe);

  // `--help` prints the help and returns false. Errors are Exit::kUsage and name the verb: an unknown flag with the
  // nearest one, a missing or ill-typed value, an argument too many.
  bool parse(const std::vector<std::string>& args);
  bool given(const std::string& name) const;  // by the last parse

 private:
  std::unique_ptr<CLI::App> app_;
};

// Config overrides are told from flags by the dot in their key: --section.key=value, --section.key value. They leave
// `args` and come back as "section.key=value".
std::vector<std::string> take_overrides(std::vector<std::string>& args);

}  // namespace mantissa
