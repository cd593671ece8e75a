// What a verb tells its user.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/display.h"

namespace mantissa {

// A text becomes what displayed() shows of it, anything else stays.
template <class T>
decltype(auto) shown_part(T&& part) {
  if constexpr (std::is_convertible_v<T, std::string_view>)
    return displayed(std::string_view(part));
  else
    return std::forward<T>(part);
}

// fmt::print for lines that a person reads: each text among the arguments is escaped, so that a name from a file can
// neither steer the terminal nor forge a line.
template <class... Args>
void say(std::FILE* stream, fmt::format_string<Args...> format, Args&&... args) {
  const fmt::string_view text = format;
  const auto print = [&](const auto&... parts) { fmt::vprint(stream, text, fmt::make_format_args(parts...)); };
  print(shown_part(std::forward<Args>(args))...);
}
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(stdout, format, std::forward<Args>(args)...);
}

}  // namespace mantissa
