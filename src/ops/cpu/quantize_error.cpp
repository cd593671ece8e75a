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

// What the codes of block (row, j / block) are multiplied by.
float factor_of(const DequantizeJob& q, int64_t row, int64_t j) {
  const QuantFormat& f = q.format;
  if (f.blocking == Blocking::kTensor) return static_cast<const float*>(q.scale_inv)[0];
  const int64_t line = f.blocking == Blocking::kTile ? row / f.block : row;
  const int64_t i = line * ceil_div(q.inner, f.block) + j / f.block;
  switch (f.rule) {
    case ScaleRule::kE8M0:
      return decode_e8m0(static_cast<const uint8_t*>(q.scale_inv)[i]);
    case ScaleRule::kNvfp4:
      return nvfp4_decode_scale(static_cast<const uint8_t*>(q.scale_inv)[i], q.amax);
    default:
      return static_cast<const float*>(q.scale_inv)[i];
  }
}

// Codes of elements [j, j + n) of a row, one a byte; n <= 128, j even.
void load_codes(const DequantizeJob& q, int64_t row, int64_t j, int n, uint8_t* codes) {
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
void decode_row(const DequantizeJob& q, int64_t row, int64_t j, int n, uint8_t* codes, float* y) {
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

uint8_t largest_code(DType element) { return element == DType::kE4M3 ? 0x7e : element == DType::kE5M2 ? 0x7b : 0x07; }

// The source of outer rows [row, row + rows) and elements [j, j + n), as floats in y[rows][128].
template <class T>
void load_source(const DequantizeJob& q, bool columnwise, const T* x, int64_t row, int rows, int64_t j, int n,
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

void add_errors(const float* x, const float* y, const uint8_t* codes, int n, uint8_t largest, QuantError& error) {
  const uint8_t magnitude_mask = largest < 8 ? 7 : 0x7f;
  double signal = 0, noise = 0;
  int64_t saturated = 0, flushed = 0;
#pragma omp simd reduction(+ : signal, noise, saturated, flushed)
  for (int i = 0; i < n; ++i) {
    const double value = x[i], difference = value - static_cast<double>(y[i]);
    signal += value * value;
    noise += difference * difference;
    // Clipped: at the largest code and beyond what it stands for by more than the rounding of scale and product.
    const float a = x[i] < 0 ? -x[i] : x[i], b = y[i] < 0 ? -y[i] : y[i];
    const bool top = (codes[i] & magnitude_mask) == largest;
    saturated += top && b > 0 && a > b * (1 + 0x1p-20f) ? 1 : 0;
    flushed += a > 0 && b == 0 ? 1 : 0;
  }
  error.signal += signal;
  error.noise += noise;
  error.saturated += saturated;
  error.flushed += flushed;
  error.count += n;
}

}  // namespace

void dequantize_rows(const DequantizeJob& q, float* y, int64_t begin, int64_t end) {
  uint8_t codes[kP];
  for (int64_t row = begin; row < end; ++row)
    for (int64_t j = 0; j < q.inner; j += kPanel) {
      const int n = static_cast<int>(q.inner - j < kPanel ? q.inner - j : kPanel);
      decode_row(q, row, j, n, codes, y + row * q.inner + j);
    }
}

QuantError error_of_rows(const DequantizeJob& q, bool columnwise, const void* x, bool is_bf16, int64_t begin,
                         int64_t end, QuantizePanel& panel) {
  QuantError error;
  const uint8_t largest = largest_code(q.format.element);
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
      add_errors(panel.tile + r * kP, value, panel.codes, n, largest, error);
    }
  }
  return error;
}

}  // namespace mantissa::MANTISSA_ISA_NS
