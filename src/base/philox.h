// Philox4x32-10, a counter-based generator: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// The same (seed, step, tensor, form, element) gives the same bits on every backend, in a replay and at any batch
// layout.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MANTISSA_PHILOX_HD __host__ __device__ __forceinline__
#else
#define MANTISSA_PHILOX_HD inline __attribute__((always_inline))
#endif

namespace mantissa {

struct Random4 {
  uint32_t x[4];
};

MANTISSA_PHILOX_HD Random4 philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n1 = static_cast<uint32_t>(p1);
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1, n3 = static_cast<uint32_t>(p0);
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Which copy of a tensor draws.
enum class DrawForm : uint32_t { kRowwise = 0, kColumnwise = 1, kUpdate = 2, kInit = 3, kOrder = 4 };

struct RandomKey {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t tensor = 0;
  DrawForm form = DrawForm::kRowwise;
};

// The 128 random bits number `block` of a stream; block < 2^56.
MANTISSA_PHILOX_HD Random4 draw(const RandomKey& key, uint64_t block) {
  return philox4x32(static_cast<uint32_t>(block),
                    static_cast<uint32_t>(block >> 32) | (static_cast<uint32_t>(key.form) << 24), key.tensor, key.step,
                    static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
}

}  // namespace mantissa
