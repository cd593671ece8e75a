// Text into HTML: escaping, figures with units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "report/run_reader.h"

namespace mantissa::report {

// Safe in element content and in quoted attributes; what displayed() escapes stands as escapes.
std::string escaped(std::string_view text);

// A JSON text that may stand inside <script type="application/json">: no "<" is left in it, and each string that is a
// value holds what displayed() shows of it.
std::string script_json(Json json);

// A JSON value as a reader wants it: strings bare, numbers grouped, lists joined with ", ", empty for null.
std::string plain(const Json& value);

// The member at a dotted path ("data.tokens"); null where any part is absent.
Json at_path(const Json& json, std::string_view path);
Number number_at(const Json& json, std::string_view path);

std::string bytes_text(double bytes);      // 1.50 GiB
std::string flops_text(double flops);      // 11.73 GFLOP
std::string seconds_text(double seconds);  // 2 min 05 s

}  // namespace mantissa::report
