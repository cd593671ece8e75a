#include "ops/cpu/adamw.h"

#include "base/parallel.h"
#include "ops/cpu/moments.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kTile = 1024;        // elements that draw together, whole blocks of 8-bit moments
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

// The arithmetic of one tile. An FP32 param is written with its copy; for a BF16 one the new values go to `after`, and
// `change` is zero where nothing moves an element.
template <class P, class G, class S>
MANTISSA_HD void update(const AdamwArgs& a, P* param, bf16* copy, const G* grad, S* m, S* v, float* after,
                        float* change, int64_t n) {
#pragma omp simd
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
      after[i] = p;
      change[i] = __builtin_fabsf(decayed) + __builtin_fabsf(moved);
    } else {
      param[i] = p;
      if (copy) copy[i] = to_bf16(p);
    }
  }
}

// Rounds into a BF16 param; returns how many elements had an update and kept their bits. One width of lane a loop:
// mixed ones keep compilers from vectorising.
template <bool kStochastic>
MANTISSA_HD int64_t round_bf16(bf16* param, const float* after, const float* change, const uint16_t* random,
                               int64_t n) {
  alignas(64) uint32_t bits[kTile];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) bits[i] = kStochastic ? bf16_stochastic(after[i], random[i]) : to_bf16(after[i]).bits;
  int32_t still = 0;
#pragma omp simd reduction(+ : still)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t before = param[i].bits;
    const int32_t wanted = change[i] != 0.0f ? 1 : 0, kept = bits[i] == before ? 1 : 0;
    still += wanted & kept;
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) param[i].bits = static_cast<uint16_t>(bits[i]);
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
      alignas(64) float after[kTile], change[kTile];
      P* param = static_cast<P*>(a.param) + i;
      bf16* copy = a.copy ? static_cast<bf16*>(a.copy) + i : nullptr;
      const G* grad = static_cast<const G*>(a.grad) + i;
      S *m = static_cast<S*>(a.m) + i, *v = static_cast<S*>(a.v) + i;
      if constexpr (sizeof(S) == 1) {
        alignas(64) float wide_m[kTile], wide_v[kTile];
        float *m_units = a.m_scale + i / kBlock, *v_units = a.v_scale + i / kBlock;
        decode_moments(wide_m, wide_v, m, v, m_units, v_units, width);
        update(a, param, copy, grad, wide_m, wide_v, after, change, width);
        encode_moments(m, v, m_units, v_units, wide_m, wide_v, width);
      } else {
        update(a, param, copy, grad, m, v, after, change, width);
      }
      if constexpr (sizeof(P) == 2) {
        if constexpr (kStochastic) draw_tile(random, a.key, i);
        mine += round_bf16<kStochastic>(param, after, change, random, width);
        if (copy) __builtin_memcpy(copy, param, static_cast<size_t>(width) * sizeof(bf16));
      }
    }
    __atomic_fetch_add(&still, mine, __ATOMIC_RELAXED);
  });
  return still;
}

}  // namespace

int64_t adamw(const AdamwArgs& a) {
  int64_t still = 0;
  with_float(a.grad_type, [&](auto grad) {
    const auto with_state = [&](auto state) {
      using G = typename decltype(grad)::type;
      using S = typename decltype(state)::type;
      if (a.param_type == DType::kF32)
        still = adamw_all<false, float, G, S>(a);
      else if (a.stochastic)
        still = adamw_all<true, bf16, G, S>(a);
      else
        still = adamw_all<false, bf16, G, S>(a);
    };
    if (a.state_type == DType::kU8)
      with_state(Type<uint8_t>{});
    else
      with_float(a.state_type, with_state);
  });
  return still;
}

}  // namespace mantissa::MANTISSA_ISA_NS
