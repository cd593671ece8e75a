// base/philox.h with the keys of its rounds at hand: a kernel that draws under one seed takes them as constants.
#pragma once

#include "base/philox.h"

namespace mantissa::cuda {

struct PhiloxKeys {
  uint32_t low[10], high[10];

  explicit PhiloxKeys(uint64_t seed) {
    for (uint32_t round = 0; round < 10; ++round) {
      low[round] = static_cast<uint32_t>(seed) + round * 0x9E3779B9u;
      high[round] = static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85u;
    }
  }
};

// draw() of key, whose seed is the keys'.
__device__ __forceinline__ Random4 draw(const RandomKey& key, const PhiloxKeys& keys, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c2 = key.tensor, c3 = key.step;
  uint32_t c1 = static_cast<uint32_t>(block >> 32) | static_cast<uint32_t>(key.form) << 24;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ keys.low[round];
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ keys.high[round];
    c1 = static_cast<uint32_t>(p1), c3 = static_cast<uint32_t>(p0);
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace mantissa::cuda
