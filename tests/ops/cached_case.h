// A sequence that is decoded in several calls.
#pragma once

#include <cmath>
#include <vector>

#include "ops/attention.h"

namespace mantissa::test {

struct CachedCase {
  const char* name;
  HeadLayout layout;
  int64_t tokens;
  std::vector<int64_t> cuts;  // calls end at these tokens

  Shape qkv() const { return {tokens, layout.qkv_cols()}; }
  Shape out() const { return {tokens, layout.heads * layout.head_dim}; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(layout.head_dim)); }
};

}  // namespace mantissa::test
