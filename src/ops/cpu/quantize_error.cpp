// The way back from codes to values, and the error of a copy against its source.
#include "ops/cpu/quantize_source.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int kP = static_cast<int>(kPanel);

struct FromE4M3 {
  static MANTISSA_HD float decode(uint8_t code) { return decode_e4m3(code); }
};
struct FromE5M2 {
  static MANTISSA_HD float decode(uint8_t code) { return decode_e5m2(code); }
};
struct FromE2M1 {
  static MANTISSA_HD float decode(uint8_t code) { return decode_e2m1(code); }
};

// Codes of elements [j, j + n) of a row, one a byte; n <= 128, j even.
void load_codes(const QuantizedView& q, int64_t row, int64_t j, int n, uint8_t* codes) {
  if (q.format.element != DType::kE2M1) {
    std::memcpy(codes, q.data + row * q.inner + j, static_cast<size_t>(n));
    return;
  }
  const uint8_t* packed = q.data + (row * q.inner + j) / 2;
  for (int i = 0; i < n / 2; ++i) {
    codes[2 * i] = packed[i] & 15u;
    codes[2 * i + 1] = packed[i] >> 4;
  }
}

template <class Codec>
void decode_codes(const uint8_t* codes, const float* factor, int n, float* y) {
#pragma omp simd
  for (int i = 0; i < n; ++i) y[i] = Codec::decode(codes[i]) * factor[i];
}

// y[i] = value of element j + i of a row; j is a multiple of 128, n <= 128.
void decode_row(const QuantizedView& q, int64_t row, int64_t j, int n, uint8_t* codes, float* y) {
  const int block = q.format.blocking == Blocking::kTensor ? kP : q.format.block;
  float factor[kP];
  for (int b = 0; b < n; b += block) {
    const float f = factor_of(q, row, j + b);
    const int end = b + block < n ? b + block : n;
    for (int i = b; i < end; ++i) factor[i] = f;
  }
  load_codes(q, row, j, n, codes);
  switch (q.format.element) {
    case DType::kE4M3:
      return decode_codes<FromE4M3>(codes, factor, n, y);
    case DType::kE5M2:
      return decode_codes<FromE5M2>(codes, factor, n, y);
    default:
      return decode_codes<FromE2M1>(codes, factor, n, y);
  }
}

// The source of outer rows [row, row + rows) and elements [j, j + n), as floats in y[rows][128].
template <class T>
void load_source(const QuantizedView& q, bool columnwise, const T* x, int64_t row, int rows, int64_t j, int n,
                 float* y) {
  if (!columnwise) {
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < n; ++i) y[r * kP + i] = to_float(x[(row + r) * q.inner + j + i]);
    return;
  }
  for (int i = 0; i < n; ++i)
    for (int r = 0; r < rows; ++r) y[r * kP + i] = to_float(x[(j + i) * q.outer + row + r]);
  if (!q.format.hadamard) return;
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < n; i += kHadamardSize) {
      bf16 group[kHadamardSize], rotated[kHadamardSize];
      for (int l = 0; l < kHadamardSize; ++l) group[l] = to_bf16(y[r * kP + i + l]);
      hadamard16(group, rotated);
      for (int l = 0; l < kHadamardSize; ++l) y[r * kP + i + l] = to_float(rotated[l]);
    }
}

void add_errors(const float* x, const float* y, const uint8_t* codes, int n, DType element, QuantError& error) {
  double signal = 0, noise = 0;
  float amax = error.amax;
  int64_t saturated = 0, flushed = 0;
#pragma omp simd reduction(+ : signal, noise, saturated, flushed) reduction(max : amax)
  for (int i = 0; i < n; ++i) {
    const double value = x[i], difference = value - static_cast<double>(y[i]);
    signal += value * value;
    noise += difference * difference;
    const float magnitude = x[i] < 0 ? -x[i] : x[i];
    amax = amax < magnitude ? magnitude : amax;
    saturated += is_saturated(element, codes[i], x[i], y[i]) ? 1 : 0;
    flushed += is_flushed(x[i], y[i]) ? 1 : 0;
  }
  error.signal += signal;
  error.noise += noise;
  error.saturated += saturated;
  error.flushed += flushed;
  error.count += n;
  error.amax = amax;
}

}  // namespace

void dequantize_rows(const QuantizedView& q, float* y, int64_t begin, int64_t end) {
  uint8_t codes[kP];
  for (int64_t row = begin; row < end; ++row)
    for (int64_t j = 0; j < q.inner; j += kPanel) {
      const int n = static_cast<int>(q.inner - j < kPanel ? q.inner - j : kPanel);
      decode_row(q, row, j, n, codes, y + row * q.inner + j);
    }
}

QuantError error_of_rows(const QuantizedView& q, bool columnwise, const void* x, bool is_bf16, int64_t begin,
                         int64_t end, QuantizePanel& panel) {
  QuantError error;
  const int rows = static_cast<int>(end - begin);
  for (int64_t j = 0; j < q.inner; j += kPanel) {
    const int n = static_cast<int>(q.inner - j < kPanel ? q.inner - j : kPanel);
    if (is_bf16)
      load_source(q, columnwise, static_cast<const bf16*>(x), begin, rows, j, n, panel.tile);
    else
      load_source(q, columnwise, static_cast<const float*>(x), begin, rows, j, n, panel.tile);
    for (int r = 0; r < rows; ++r) {
      float value[kP];
      decode_row(q, begin + r, j, n, panel.codes, value);
      add_errors(panel.tile + r * kP, value, panel.codes, n, q.format.element, error);
    }
  }
  return error;
}

}  // namespace mantissa::MANTISSA_ISA_NS
