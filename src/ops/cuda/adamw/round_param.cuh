// What the update leaves of eight BF16 elements: rounded to nearest or stochastically.
#pragma once

#include "ops/cuda/adamw/elements.cuh"

namespace mantissa::cuda::adamw {

// A BF16 param: rounds, counts what had an update and did not move.
template <bool kStochastic, bool kVector>
__device__ __forceinline__ Packed<Bf16> round_param(const UpdateArgs& a, const Place<kVector>& at, const Step& x,
                                                    const Packed<Bf16>& before, unsigned& still) {
  Packed<Bf16> rounded;
  if constexpr (kStochastic) {
    const RandomKey key{.step = a.step, .tensor = at.row->id, .form = DrawForm::kUpdate};
    const Random4 bits = draw(key, a.keys, static_cast<uint64_t>(at.first) / kWide);
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = __float_as_uint(x.after.x[2 * j]) + (bits.x[j] & 0xffffu);
      const uint32_t high = __float_as_uint(x.after.x[2 * j + 1]) + (bits.x[j] >> 16);
      words[j] = __byte_perm(low, high, 0x7632);
    }
    if (!x.ordinary) {  // NaN and Inf keep what rounding to nearest gives
      const Packed<Bf16> near = pack<Bf16>(x.after);
      const uint32_t nearest[4] = {near.raw.x, near.raw.y, near.raw.z, near.raw.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!isfinite(x.after.x[2 * j])) words[j] = (words[j] & 0xffff0000u) | (nearest[j] & 0xffffu);
        if (!isfinite(x.after.x[2 * j + 1])) words[j] = (words[j] & 0xffffu) | (nearest[j] & 0xffff0000u);
      }
    }
    rounded.raw = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    rounded = pack<Bf16>(x.after);
  }
  const uint32_t moved[4] = {rounded.raw.x ^ before.raw.x, rounded.raw.y ^ before.raw.y, rounded.raw.z ^ before.raw.z,
                             rounded.raw.w ^ before.raw.w};
  if (x.ordinary) {
    uint32_t changed = 0;  // of even elements, and of odd ones in the high half
#pragma unroll
    for (int j = 0; j < 4; ++j) changed += __vminu2(moved[j], 0x00010001u);
    still += kWide - (changed & 0xffffu) - (changed >> 16);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!(moved[j] & 0xffffu)) still += x.wanted >> 2 * j & 1u;
      if (!(moved[j] >> 16)) still += x.wanted >> (2 * j + 1) & 1u;
    }
  }
  return rounded;
}

}  // namespace mantissa::cuda::adamw
