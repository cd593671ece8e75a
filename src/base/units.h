// Quantities as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa {

std::string bytes_text(double bytes);                    // "66.4 GiB", "512 B"
std::string count_text(double count);                    // "1.72 B", "3.4 M", "112"; three significant digits
std::string grouped(int64_t value);                      // "90,955,776"
std::string duration_text(double seconds);               // "18:56", "1:02:03"; "-" for NaN, infinity and below zero
std::string percent_text(double share, int digits = 1);  // 0.173 -> "17.3%"

}  // namespace mantissa
