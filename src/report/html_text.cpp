#include "report/html_text.h"

#include <cmath>

#include "base/display.h"
#include "base/error.h"
#include "report/table.h"

namespace mantissa::report {
namespace {

std::string with_unit(double value, double base, const char* const* units, int count, const char* suffix) {
  int unit = 0;
  while (std::abs(value) >= base && unit + 1 < count) {
    value /= base;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : std::abs(value) < 10 ? 2 : 1;
  return fmt::format("{:.{}f} {}{}", value, decimals, units[unit], suffix);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (const char c : displayed(text, Breaks::kKeep)) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

void display_strings(Json& json) {
  if (json.is_string())
    json = displayed(json.get_ref<const std::string&>());
  else if (json.is_structured())
    for (Json& part : json) display_strings(part);
}

std::string script_json(Json json) {
  display_strings(json);
  std::string out;
  for (const char c : json.dump()) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

std::string plain(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) {
    const double number = value.get<double>();
    return std::abs(number) < 1e5 ? value.dump() : grouped(number);
  }
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value) {
      if (!out.empty()) out += ", ";
      out += plain(item);
    }
    return out;
  }
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json at_path(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    if (!at->is_object()) return {};
    const auto found = at->find(std::string(path.substr(0, dot)));
    if (found == at->end()) return {};
    at = &*found;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return *at;
}

Number number_at(const Json& json, std::string_view path) {
  const Json value = at_path(json, path);
  return value.is_number() ? Number(value.get<double>()) : Number();
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  return with_unit(bytes, 1024, kUnits, 5, "");
}

std::string flops_text(double flops) {
  static constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  return with_unit(flops, 1000, kUnits, 6, "FLOP");
}

std::string seconds_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace mantissa::report
