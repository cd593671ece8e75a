#include "base/units.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa {
namespace {

// Three significant digits of a value below 1000, without trailing zeros.
std::string three_digits(double value) {
  const double size = std::abs(value);
  std::string text = fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  if (text.find('.') != std::string::npos) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(bytes) < 1024) return fmt::format("{:.0f} B", bytes);
  size_t unit = 0;
  double value = bytes / 1024;
  while (std::abs(value) >= 1023.95 && unit + 1 < std::size(kNames)) value /= 1024, ++unit;
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string count_text(double count) {
  constexpr const char* kNames[] = {"", " K", " M", " B", " T"};
  size_t unit = 0;
  while (std::abs(count) >= 999.5 && unit + 1 < std::size(kNames)) count /= 1000, ++unit;
  return three_digits(count) + kNames[unit];
}

std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "-";
  const int64_t total = std::llround(seconds);
  const int64_t hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{}:{:02}", minutes, total % 60);
}

std::string percent_text(double share, int digits) { return fmt::format("{:.{}f}%", 100 * share, digits); }

}  // namespace mantissa
