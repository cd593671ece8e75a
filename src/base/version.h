// The version that `mantissa --version` prints and run.json records; CMakeLists.txt states the same (a test compares
// them).
#pragma once

namespace mantissa {

inline constexpr const char* kVersion = "0.1.0";

// Commit of the build, "+changes" behind it where sources differed; "unknown" outside a checkout.
const char* commit();

}  // namespace mantissa
