// Small pieces of text work that messages and parsers share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

// Text from outside, fit for one line of a message: control and non-ASCII bytes become \xNN, the middle of more than
// `limit` characters becomes "...".
std::string printable(std::string_view text, size_t limit = 120);

std::string_view trim(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);
std::string lower(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Whole-string conversions; false when anything is left over or the value does not fit.
bool parse_int(std::string_view text, int64_t& value);
bool parse_double(std::string_view text, double& value);

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace mantissa
