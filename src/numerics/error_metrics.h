// Error of a quantized copy against its source.
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/inline.h"

namespace mantissa {

struct QuantError {
  double signal = 0;      // sum of x²
  double noise = 0;       // sum of (x - dequantized)²
  int64_t saturated = 0;  // elements whose scaled value exceeded the format's largest
  int64_t flushed = 0;    // non-zero elements that became zero
  int64_t count = 0;
  float amax = 0;  // of x; NaN left out

  MANTISSA_HD QuantError& operator+=(const QuantError& other) {
    signal += other.signal, noise += other.noise;
    saturated += other.saturated, flushed += other.flushed, count += other.count;
    amax = amax < other.amax ? other.amax : amax;
    return *this;
  }
  double snr_db() const { return noise == 0 ? INFINITY : 10 * std::log10(signal / noise); }
  double saturated_share() const { return count ? static_cast<double>(saturated) / static_cast<double>(count) : 0; }
  double flushed_share() const { return count ? static_cast<double>(flushed) / static_cast<double>(count) : 0; }
};

}  // namespace mantissa
