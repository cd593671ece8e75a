// Moments of eight elements, as floats and in 8 bits (numerics/moment8.h).
#pragma once

#include "numerics/moment8.h"
#include "ops/cuda/adamw/elements.cuh"
#include "ops/cuda/common/rounded.cuh"

namespace mantissa::cuda::adamw {

constexpr int kLanesPerBlock = kMomentBlock / kWide;  // threads that share one unit of 8-bit moments

// Both moments of eight elements as they lie in memory.
template <class S>
struct Moments {
  Packed<S> m, v;
  template <bool kVector>
  __device__ __forceinline__ void load(const Place<kVector>& at) {
    m = at.template fetch<S>(at.row->m);
    v = at.template fetch<S>(at.row->v);
  }
  __device__ __forceinline__ void decode(Wide& wide_m, Wide& wide_v) const {
    wide_m = widen(m);
    wide_v = widen(v);
  }
  template <bool kVector>
  __device__ __forceinline__ static void store(const Place<kVector>& at, const Step& x) {
    at.put(at.row->m, pack<S>(x.m));
    at.put(at.row->v, pack<S>(x.v));
  }
};

template <>
struct Moments<uint8_t> {
  uint2 m, v;
  float m_unit, v_unit;
  template <bool kVector>
  __device__ __forceinline__ void load(const Place<kVector>& at) {
    m = at.fetch_codes(at.row->m);
    v = at.fetch_codes(at.row->v);
    const bool any = at.count() > 0;
    m_unit = any ? at.row->m_scale[at.first / kMomentBlock] : 0.0f;
    v_unit = any ? at.row->v_scale[at.first / kMomentBlock] : 0.0f;
  }
  // As moment8.h, with a byte put under an exponent by one permutation: 2^23 + k, for m with its sign.
  __device__ __forceinline__ void decode(Wide& wide_m, Wide& wide_v) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint32_t m_word = j ? m.y : m.x, v_word = j ? v.y : v.x;
      const uint32_t sizes = m_word & 0x7f7f7f7fu, tops = (m_word & 0x80808080u) | 0x4b4b4b4bu;
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t raised = bytes_of_two(sizes, tops, 0x4880u + 0x1111u * k);
        const float m_root = fabsf(__uint_as_float(raised)) - 0x1p23f;
        const float size = m_root * m_root * m_unit;
        wide_m.x[4 * j + k] = __uint_as_float(__float_as_uint(size) | (raised & 0x80000000u));
        const float v_root = __uint_as_float(bytes_of_two(v_word, 0x4b000000u, 0x7540u + k)) - 0x1p23f;
        const float root = v_root * v_root * v_unit;
        wide_v.x[4 * j + k] = root * root;
      }
    }
  }
  // All threads of a warp take part. Elements past the end are zeros: decoded so, and with a gradient of zero.
  template <bool kVector>
  __device__ __forceinline__ static void store(const Place<kVector>& at, const Step& x) {
    float m_most = x.m_most, v_most = x.root_most;
#pragma unroll
    for (int step = kLanesPerBlock / 2; step > 0; step /= 2) {
      m_most = fmaxf(m_most, __shfl_xor_sync(kAll, m_most, step));
      v_most = fmaxf(v_most, __shfl_xor_sync(kAll, v_most, step));
    }
    const float m_unit = moment8::unit_of<127>(m_most), v_unit = moment8::unit_of<255>(v_most);
    uint32_t m_codes[2], v_codes[2];
    if (x.ordinary && fmaxf(m_most, v_most) <= kMostMoment)
      encode(m_codes, v_codes, x, reciprocal_of(m_unit), reciprocal_of(v_unit));
    else
      encode_any(m_codes, v_codes, x, moment8::inverse_of(m_unit), moment8::inverse_of(v_unit));
    at.put_codes(at.row->m, {m_codes[0], m_codes[1]});
    at.put_codes(at.row->v, {v_codes[0], v_codes[1]});
    if (threadIdx.x % kLanesPerBlock == 0 && at.count() > 0) {
      at.row->m_scale[at.first / kMomentBlock] = m_unit;
      at.row->v_scale[at.first / kMomentBlock] = v_unit;
    }
  }
  __device__ __forceinline__ static void encode(uint32_t (&m_codes)[2], uint32_t (&v_codes)[2], const Step& x,
                                                float m_inverse, float v_inverse) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t m[4], signs[4], v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        m[k] = nearest_code(fabsf(x.m.x[4 * j + k]) * m_inverse);
        signs[k] = __float_as_uint(x.m.x[4 * j + k]);
        v[k] = nearest_code(fmaxf(x.roots.x[4 * j + k] * v_inverse, 0.5f));  // never zero
      }
      m_codes[j] = (low_bytes(m[0], m[1], m[2], m[3]) & 0x7f7f7f7fu) |
                   (high_bytes(signs[0], signs[1], signs[2], signs[3]) & 0x80808080u);
      v_codes[j] = low_bytes(v[0], v[1], v[2], v[3]);
    }
  }
  __device__ __forceinline__ static void encode_any(uint32_t (&m_codes)[2], uint32_t (&v_codes)[2], const Step& x,
                                                    float m_inverse, float v_inverse) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      m_codes[j] = v_codes[j] = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        m_codes[j] |= moment8::encode_m(x.m.x[4 * j + k], m_inverse) << 8 * k;
        v_codes[j] |= moment8::encode_root(x.roots.x[4 * j + k], v_inverse) << 8 * k;
      }
    }
  }
};

}  // namespace mantissa::cuda::adamw
