// Logarithm, sine and cosine in double by series, accurate to a few units of 2^-53, then one rounding to float. Where
// kDoubt more or less would round to another float, the C library decides, as it would for every value: so the bits are
// those of its functions (which err by less than one unit), at a few times their speed.
#include "ops/cpu/random.h"

#include <cmath>

#include "ops/cpu/types.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int kBlocks = 128;  // drawn at a time: four values each
constexpr int kPairs = 2 * kBlocks;
constexpr double kDoubt = 0x1p-45;  // relative; the series are within 2^-49
constexpr double kSmall = 0x1p-20;  // sines and cosines below cancel too much
constexpr double kTwo52 = 0x1p52, kRound = 0x1.8p52;

MANTISSA_HD uint64_t bits_of_double(double x) { return __builtin_bit_cast(uint64_t, x); }
MANTISSA_HD double double_of_bits(uint64_t x) { return __builtin_bit_cast(double, x); }
// Below 2^52.
MANTISSA_HD double to_double(uint64_t x) { return double_of_bits(x | bits_of_double(kTwo52)) - kTwo52; }

// log(u), u in (0, 1): u = 2^e m, m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)).
MANTISSA_HD double log_series(double u) {
  // 0x3fe6a09e.. are the bits of sqrt(1/2).
  const uint64_t shifted = bits_of_double(u) - 0x3fe6a09e00000000u + (uint64_t{1} << 62);
  const double e = to_double(shifted >> 52) - 1024.0;
  const double m = double_of_bits((shifted & 0x000fffffffffffffu) + 0x3fe6a09e00000000u);
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 1.0 / 23;
  p = p * z + 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return e * 0.6931471805599453 + (2.0 * s + 2.0 * s * (z * p));
}

MANTISSA_HD double sin_series(double y, double z) {
  double p = 1.0 / 355687428096000;
  p = p * z - 1.0 / 1307674368000;
  p = p * z + 1.0 / 6227020800;
  p = p * z - 1.0 / 39916800;
  p = p * z + 1.0 / 362880;
  p = p * z - 1.0 / 5040;
  p = p * z + 1.0 / 120;
  p = p * z - 1.0 / 6;
  return y + y * (z * p);
}

MANTISSA_HD double cos_series(double z) {
  double p = -1.0 / 6402373705728000;
  p = p * z + 1.0 / 20922789888000;
  p = p * z - 1.0 / 87178291200;
  p = p * z + 1.0 / 479001600;
  p = p * z - 1.0 / 3628800;
  p = p * z + 1.0 / 40320;
  p = p * z - 1.0 / 720;
  p = p * z + 1.0 / 24;
  return 1.0 - (0.5 * z - z * z * p);
}

MANTISSA_HD double angle_of(uint32_t b) { return 6.283185307179586 * (to_double(b) / 4294967296.0); }
MANTISSA_HD double uniform_of(uint32_t a) { return (to_double(a) + 0.5) / 4294967296.0; }

void exact_pair(uint32_t a, uint32_t b, float std, float* out) {
  const double r = std::sqrt(-2 * std::log(uniform_of(a))), angle = angle_of(b);
  out[0] = std * static_cast<float>(r * std::cos(angle));
  out[1] = std * static_cast<float>(r * std::sin(angle));
}

// kDoubt more or less rounds to the same float.
MANTISSA_HD bool certain(double x) {
  return static_cast<float>(x * (1.0 + kDoubt)) == static_cast<float>(x * (1.0 - kDoubt));
}

// Pairs of normals; doubt[i] is set where one of them needs the C library.
void fast_pairs(const uint32_t* a, const uint32_t* b, float std, float* out, uint32_t* doubt) {
#pragma omp simd
  for (int i = 0; i < kPairs; ++i) {
    const double r = __builtin_sqrt(-2.0 * log_series(uniform_of(a[i]))), angle = angle_of(b[i]);
    // angle = q pi/2 + y, |y| <= pi/4, pi/2 in two parts (the first with 33 bits, so that its multiples are exact).
    const double turned = angle * 0.6366197723675814 + kRound, q = turned - kRound;
    const double y = (angle - q * 1.57079632673412561417) - q * 6.07710050650619224932e-11, z = y * y;
    const double s = sin_series(y, z), c = cos_series(z);
    const uint64_t quadrant = bits_of_double(turned);
    const bool odd = (quadrant & 1) != 0;
    const double sine = odd ? c : s, cosine = odd ? s : c;
    const double x = (((quadrant + 1) & 2) != 0 ? -cosine : cosine) * r, w = ((quadrant & 2) != 0 ? -sine : sine) * r;
    const bool sure = certain(x) & certain(w) & (__builtin_fabs(sine) >= kSmall) & (__builtin_fabs(cosine) >= kSmall);
    out[2 * i] = std * static_cast<float>(x);
    out[2 * i + 1] = std * static_cast<float>(w);
    doubt[i] = sure ? 0u : 1u;
  }
}

}  // namespace

void normal_values(const RandomKey& key, int64_t first, int64_t n, float std, float* out) {
  alignas(64) uint32_t a[kPairs], b[kPairs], doubt[kPairs];
  alignas(64) float values[2 * kPairs];
  for (int64_t at = 0; at < n; at += 4 * kBlocks) {
    const auto block = static_cast<uint64_t>((first + at) / 4);
#pragma omp simd
    for (int i = 0; i < kBlocks; ++i) {
      const Random4 r = draw(key, block + static_cast<uint64_t>(i));
      a[2 * i] = r.x[0], b[2 * i] = r.x[1];
      a[2 * i + 1] = r.x[2], b[2 * i + 1] = r.x[3];
    }
    fast_pairs(a, b, std, values, doubt);
    uint32_t any = 0;
    for (int i = 0; i < kPairs; ++i) any |= doubt[i];
    if (any)
      for (int i = 0; i < kPairs; ++i)
        if (doubt[i]) exact_pair(a[i], b[i], std, values + 2 * i);
    const int64_t count = n - at < 2 * kPairs ? n - at : 2 * kPairs;
    for (int64_t i = 0; i < count; ++i) out[at + i] = values[i];
  }
}

}  // namespace mantissa::MANTISSA_ISA_NS
