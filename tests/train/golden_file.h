// Files of tests/golden as tests read them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/safetensors.h"

namespace mantissa {

inline const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

inline std::vector<float> floats(const safetensors::Reader& file, const std::string& name) {
  const auto& view = file.at(name);
  std::vector<float> out(static_cast<size_t>(view.elements()));
  std::memcpy(out.data(), view.bytes.data(), out.size() * sizeof(float));
  return out;
}

inline std::vector<int32_t> integers(const safetensors::Reader& file, const std::string& name) {
  const auto& view = file.at(name);
  std::vector<int64_t> wide(static_cast<size_t>(view.elements()));
  std::memcpy(wide.data(), view.bytes.data(), wide.size() * sizeof(int64_t));
  return {wide.begin(), wide.end()};
}

}  // namespace mantissa
