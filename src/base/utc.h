// The time in UTC, as the files of a run and of a lock tell it.
#pragma once

#include <string>

namespace mantissa {

std::string utc_now();  // "2026-01-31T12:00:00Z"

}  // namespace mantissa
