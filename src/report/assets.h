// Files that the page carries inside, embedded at build time (cmake/report_assets.cmake).
#pragma once

#include <cstddef>
#include <string_view>

namespace mantissa::report {

struct Asset {
  const char* name;
  const unsigned char* bytes;
  size_t size;
};

extern const Asset kAssets[];
extern const size_t kAssetCount;

// The text of an asset; empty when the build did not have it.
std::string_view asset(std::string_view name);

}  // namespace mantissa::report
