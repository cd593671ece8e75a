// 8-bit moments of a tile as FP32 and back.
#pragma once

#include "numerics/moment8.h"
#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {

constexpr int64_t kBlock = 128;  // kMomentBlock

MANTISSA_HD void decode_moments(float* m, float* v, const uint8_t* m_codes, const uint8_t* v_codes,
                                const float* m_units, const float* v_units, int64_t n) {
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = at + kBlock < n ? at + kBlock : n;
    const float m_unit = m_units[at / kBlock], v_unit = v_units[at / kBlock];
#pragma omp simd
    for (int64_t i = at; i < end; ++i) {
      m[i] = moment8::decode_m(m_codes[i], m_unit);
      v[i] = moment8::decode_v(v_codes[i], v_unit);
    }
  }
}

// v is overwritten by its roots.
MANTISSA_HD void encode_moments(uint8_t* m_codes, uint8_t* v_codes, float* m_units, float* v_units, const float* m,
                                float* v, int64_t n) {
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = at + kBlock < n ? at + kBlock : n;
    float m_most = 0, v_most = 0;
#pragma omp simd reduction(max : m_most, v_most)
    for (int64_t i = at; i < end; ++i) {
      v[i] = __builtin_sqrtf(v[i]);
      const float magnitude = abs_of(m[i]);
      m_most = magnitude > m_most ? magnitude : m_most;
      v_most = v[i] > v_most ? v[i] : v_most;
    }
    const float m_unit = moment8::unit_of<127>(m_most), v_unit = moment8::unit_of<255>(v_most);
    const float m_inverse = moment8::inverse_of(m_unit), v_inverse = moment8::inverse_of(v_unit);
    m_units[at / kBlock] = m_unit;
    v_units[at / kBlock] = v_unit;
#pragma omp simd
    for (int64_t i = at; i < end; ++i) {
      m_codes[i] = static_cast<uint8_t>(moment8::encode_m(m[i], m_inverse));
      v_codes[i] = static_cast<uint8_t>(moment8::encode_root(v[i], v_inverse));
    }
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
