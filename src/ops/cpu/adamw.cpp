#include "ops/cpu/adamw.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kTile = 1024;        // elements that draw together
constexpr int64_t kDrawsPerBlock = 8;  // 16-bit draws in 128 bits

// Element i draws half-word i % 8 of block i / 8, low half of a word first.
MANTISSA_HD void draw_tile(uint16_t* random, const RandomKey& key, int64_t element) {
  const uint64_t block = static_cast<uint64_t>(element / kDrawsPerBlock);
  alignas(64) uint32_t words[kTile / 2];
#pragma omp simd
  for (int64_t b = 0; b < kTile / kDrawsPerBlock; ++b) {
    const Random4 bits = draw(key, block + static_cast<uint64_t>(b));
    words[4 * b] = bits.x[0];
    words[4 * b + 1] = bits.x[1];
    words[4 * b + 2] = bits.x[2];
    words[4 * b + 3] = bits.x[3];
  }
#pragma omp simd
  for (int64_t w = 0; w < kTile / 2; ++w) {
    random[2 * w] = static_cast<uint16_t>(words[w]);
    random[2 * w + 1] = static_cast<uint16_t>(words[w] >> 16);
  }
}

// Up with probability (bits below BF16) / 2^16; NaN and Inf as to_bf16.
MANTISSA_HD uint16_t bf16_stochastic(float x, uint16_t random) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const bool finite = (u & 0x7f800000u) != 0x7f800000u;
  const uint32_t moved = (u + random) >> 16, kept = to_bf16(x).bits;
  return static_cast<uint16_t>(finite ? moved : kept);
}

// Returns how many elements of a BF16 param had an update and kept their bits.
template <bool kStochastic, class P, class G, class S>
MANTISSA_HD int64_t update(const AdamwArgs& a, P* param, bf16* copy, const G* grad, S* m, S* v, const uint16_t* random,
                           int64_t n) {
  int32_t still = 0;
#pragma omp simd reduction(+ : still)
  for (int64_t i = 0; i < n; ++i) {
    const float before = to_float(param[i]), g = a.grad_scale * to_float(grad[i]);
    const float decayed = a.decay * before;
    const float mi = a.beta1 * to_float(m[i]) + a.one_minus_beta1 * g;
    const float vi = a.beta2 * to_float(v[i]) + a.one_minus_beta2 * (g * g);
    m[i] = from_float<S>(mi);
    v[i] = from_float<S>(vi);
    const float moved = a.step_size * (mi / (__builtin_sqrtf(vi) / a.sqrt_correction2 + a.eps));
    const float p = before - decayed - moved;
    if constexpr (sizeof(P) == 2) {
      const uint16_t bits = kStochastic ? bf16_stochastic(p, random[i]) : to_bf16(p).bits;
      still += ((decayed != 0) | (moved != 0)) & (bits == param[i].bits) ? 1 : 0;
      param[i].bits = bits;
    } else {
      param[i] = p;
    }
    if (copy) copy[i] = to_bf16(p);
  }
  return still;
}

template <bool kStochastic, class P, class G, class S>
int64_t adamw_all(const AdamwArgs& a) {
  int64_t still = 0;
  parallel_for(a.n, kTile, [&](int64_t begin, int64_t end) {
    int64_t mine = 0;
    for (int64_t i = begin; i < end; i += kTile) {
      const int64_t width = end - i < kTile ? end - i : kTile;
      alignas(64) uint16_t random[kTile];
      if constexpr (kStochastic) draw_tile(random, a.key, i);
      mine += update<kStochastic>(a, static_cast<P*>(a.param) + i, a.copy ? static_cast<bf16*>(a.copy) + i : nullptr,
                                  static_cast<const G*>(a.grad) + i, static_cast<S*>(a.m) + i, static_cast<S*>(a.v) + i,
                                  random, width);
    }
    __atomic_fetch_add(&still, mine, __ATOMIC_RELAXED);
  });
  return still;
}

}  // namespace

int64_t adamw(const AdamwArgs& a) {
  int64_t still = 0;
  with_float(a.grad_type, [&](auto grad) {
    with_float(a.state_type, [&](auto state) {
      using G = typename decltype(grad)::type;
      using S = typename decltype(state)::type;
      if (a.param_type == DType::kF32)
        still = adamw_all<false, float, G, S>(a);
      else if (a.stochastic)
        still = adamw_all<true, bf16, G, S>(a);
      else
        still = adamw_all<false, bf16, G, S>(a);
    });
  });
  return still;
}

}  // namespace mantissa::MANTISSA_ISA_NS
