#include "app/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace mantissa {
namespace {

// "--disable_rht,--disable-rht"
std::string flag_names(std::string_view key) {
  std::string names = "--" + std::string(key), dashed = names;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed == names ? names : names + "," + dashed;
}

class FlagFields final : public config::Fields {
 public:
  explicit FlagFields(CLI::App& app) : app_(app) {}

  void text(std::string_view key, std::string& value, std::string_view help) override { add(key, value, help); }
  void choice(std::string_view key, std::string& value, std::vector<std::string> allowed, std::string_view help,
              std::string_view) override {
    add(key, value, help)->check(CLI::IsMember(std::move(allowed)));
  }
  void number(std::string_view key, double& value, std::string_view help, config::Range range) override {
    add(key, value, help)->check(within(range));
  }
  void integer(std::string_view key, int64_t& value, std::string_view help, config::Range range) override {
    add(key, value, help)->check(within(range));
  }
  void boolean(std::string_view key, bool& value, std::string_view help) override {
    app_.add_flag(flag_names(key), value, std::string(help));
  }
  void numbers(std::string_view key, std::vector<double>& value, std::string_view help) override {
    add(key, value, help)->delimiter(',');
  }
  void integers(std::string_view key, std::vector<int64_t>& value, std::string_view help) override {
    add(key, value, help)->delimiter(',');
  }
  void texts(std::string_view key, std::vector<std::string>& value, std::string_view help) override {
    add(key, value, help)->delimiter(',');
  }
  void unavailable(std::string_view key, std::string_view message) override {
    app_.add_option_function<std::string>(
        flag_names(key),
        [key = std::string(key), message = std::string(message)](const std::string&) {
          fail(Exit::kUsage, "--{}: {}", key, message);
        },
        std::string(message));
  }
  void section(std::string_view key, const std::function<void(Fields&)>&) override { refuse(key); }
  void list(std::string_view key, size_t&, const std::function<void(Fields&, size_t)>&, std::string_view) override {
    refuse(key);
  }

 private:
  template <class T>
  CLI::Option* add(std::string_view key, T& value, std::string_view help) {
    return app_.add_option(flag_names(key), value, std::string(help))->capture_default_str();
  }
  // CLI11's form of a check: the complaint, or "".
  static std::function<std::string(const std::string&)> within(config::Range range) {
    return [range](const std::string& text) -> std::string {
      double value = 0;
      if (!parse_double(text, value)) return fmt::format("{} is not a number", printable(text));
      if (value >= range.min && value <= range.max) return "";
      return fmt::format("{}, expected {} to {}", printable(text), range.min, range.max);
    };
  }
  static void refuse(std::string_view key) { check(false, "field {} has parts and cannot be a flag", key); }

  CLI::App& app_;
};

[[noreturn]] void refuse_extra(CLI::App& app, const std::string& argument) {
  if (!argument.starts_with("-")) fail(Exit::kUsage, "{}: unexpected argument {}", app.get_name(), printable(argument));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string flag = argument.substr(0, argument.find('=')), near = config::nearest(flag, names);
  fail(Exit::kUsage, "{}: unknown flag {}; {}", app.get_name(), printable(flag),
       near.empty() ? "mantissa " + app.get_name() + " --help lists them" : "did you mean " + near + "?");
}

}  // namespace

std::vector<std::string> take_overrides(std::vector<std::string>& args) {
  std::vector<std::string> overrides, rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    const size_t equals = arg.find('=');
    if (!arg.starts_with("--") || arg.substr(0, equals).find('.') == std::string::npos) {
      rest.push_back(arg);
      continue;
    }
    if (equals != std::string::npos) {
      overrides.push_back(arg.substr(2));
    } else {
      if (i + 1 == args.size())
        fail(Exit::kUsage, "{} has no value, expected {}=VALUE", printable(arg), printable(arg));
      overrides.push_back(arg.substr(2) + "=" + args[++i]);
    }
  }
  args = std::move(rest);
  return overrides;
}

CommandLine::CommandLine(const std::string& description, const std::string& verb)
    : app_(std::make_unique<CLI::App>(description, verb)) {}
CommandLine::~CommandLine() = default;

FlagRules CommandLine::option(const std::string& name, std::string& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, int64_t& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, uint64_t& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, double& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, std::vector<std::string>& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, std::vector<int64_t>& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
FlagRules CommandLine::option(const std::string& name, std::vector<double>& target, const std::string& help) {
  return FlagRules(app_->add_option(name, target, help));
}
void CommandLine::flag(const std::string& name, bool& target, const std::string& help) {
  app_->add_flag(name, target, help);
}
void CommandLine::fields(const std::function<void(config::Fields&)>& describe) {
  FlagFields fields(*app_);
  describe(fields);
}

bool CommandLine::parse(const std::vector<std::string>& given) {
  CLI::App& app = *app_;
  // "--flag=" is an empty value; CLI11 would take the next argument for it.
  std::vector<std::string> args;
  for (const std::string& arg : given) {
    const bool empty = arg.starts_with("--") && arg.find('=') == arg.size() - 1;
    args.push_back(empty ? arg.substr(0, arg.size() - 1) : arg);
    if (empty) args.emplace_back();
  }
  app.allow_extras();  // refused below, with a suggestion
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    std::string text = app.help();
    const std::string usage = "Usage: " + app.get_name();
    if (const size_t at = text.find(usage); at != std::string::npos) text.insert(at + 7, "mantissa ");
    fmt::print("{}", text);
    return false;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> extra = app.remaining();
    if (!extra.empty() && dynamic_cast<const CLI::RequiredError*>(&error)) refuse_extra(app, extra.front());
    fail(Exit::kUsage, "{}: {}", app.get_name(), error.what());
  }
  const std::vector<std::string> extra = app.remaining();
  if (!extra.empty()) refuse_extra(app, extra.front());
  return true;
}

bool CommandLine::given(const std::string& name) const { return app_->count(name) > 0; }

FlagRules& FlagRules::required() {
  option_->required();
  return *this;
}
FlagRules& FlagRules::show_default() {
  option_->capture_default_str();
  return *this;
}
FlagRules& FlagRules::one_of(std::vector<std::string> values) {
  option_->check(CLI::IsMember(std::move(values)));
  return *this;
}
FlagRules& FlagRules::within(int64_t min, int64_t max) {
  option_->check(CLI::Range(min, max));
  return *this;
}
FlagRules& FlagRules::between(double min, double max) {
  option_->check(CLI::Range(min, max));
  return *this;
}
FlagRules& FlagRules::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}
FlagRules& FlagRules::check(std::function<std::string(const std::string&)> complaint) {
  option_->check(std::move(complaint));
  return *this;
}
FlagRules& FlagRules::comma_separated() {
  option_->delimiter(',');
  return *this;
}
FlagRules& FlagRules::values(int count) {
  option_->expected(count);
  return *this;
}
FlagRules& FlagRules::one_each() {
  option_->allow_extra_args(false);
  return *this;
}

}  // namespace mantissa
