#include "report/assets.h"

namespace mantissa::report {

std::string_view asset(std::string_view name) {
  for (size_t i = 0; i < kAssetCount; ++i)
    if (name == kAssets[i].name) return {reinterpret_cast<const char*>(kAssets[i].bytes), kAssets[i].size};
  return {};
}

}  // namespace mantissa::report
