// A plain reference of the casts, one element at a time, from the formulas of docs/numerics.md; and helpers of their
// tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "numerics/bf16.h"
#include "ops/quantize.h"
#include "tensor/arena.h"
#include "tests/numerics/codec_reference.h"

namespace mantissa::test {

// x[M,K] with the values that a BF16 or F32 tensor holds.
struct Matrix {
  int64_t m = 0, k = 0;
  bool is_bf16 = true;
  std::vector<float> values;
  std::vector<bf16> rounded;

  void set(const std::vector<float>& v) {
    values = v;
    rounded.clear();
    for (float& x : values) {
      rounded.push_back(to_bf16(x));
      if (is_bf16) x = to_float(rounded.back());
    }
  }
  float at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * k + j)]; }
  ConstTensor tensor() const {
    if (is_bf16) return {rounded.data(), DType::kBF16, {m, k}};
    return {values.data(), DType::kF32, {m, k}};
  }
};

// Roughly normal values of which some are outliers, tiny, zeros of both signs, and whole rows of zeros.
inline Matrix random_matrix(int64_t m, int64_t k, bool is_bf16, uint64_t seed) {
  Matrix x{m, k, is_bf16, {}, {}};
  std::vector<float> v;
  for (int64_t i = 0; i < m * k; ++i) {
    const Random4 r = draw({seed, 0, 0, DrawForm::kInit}, static_cast<uint64_t>(i));
    const auto unit = [&](int j) { return (static_cast<float>(r.x[j] >> 8) + 0.5f) * 0x1p-24f; };
    float value = std::sqrt(-2 * std::log(unit(0))) * std::cos(6.2831853f * unit(1));
    const uint32_t kind = r.x[2] % 64;
    if (kind == 0) value *= 300;
    if (kind == 1) value *= 1e-6f;
    if (kind == 2) value = r.x[3] % 2 ? 0.0f : -0.0f;
    if ((i / k) % 37 == 5) value = 0;
    v.push_back(value);
  }
  x.set(v);
  return x;
}

// A quantized copy with its memory.
struct OwnedCopy {
  Arena arena;
  Quantized q;
  float given = 1;

  OwnedCopy(const QuantFormat& format, bool columnwise, int64_t m, int64_t k) {
    arena.build([&](Arena& a) { q = a.quantized("copy", format, columnwise ? k : m, columnwise ? m : k); });
    q.scale = &given;
  }
  std::vector<uint8_t> codes() const {
    const auto* bytes = static_cast<const uint8_t*>(q.data.data);
    std::vector<uint8_t> out;
    for (int64_t i = 0; i < q.data.count(); ++i)
      out.push_back(q.format.element == DType::kE2M1 ? (bytes[i / 2] >> (i % 2 * 4)) & 15 : bytes[i]);
    return out;
  }
  // Scale bits: F32 words or single bytes.
  std::vector<uint32_t> scales() const {
    std::vector<uint32_t> out;
    for (int64_t i = 0; i < q.scale_inv.count(); ++i)
      out.push_back(q.scale_inv.dtype == DType::kF32 ? static_cast<const uint32_t*>(q.scale_inv.data)[i]
                                                     : static_cast<const uint8_t*>(q.scale_inv.data)[i]);
    return out;
  }
};

struct ReferenceCopy {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales;
  float amax = 0;
};

inline float magnitude_or_zero(float x) { return std::isnan(x) ? 0.0f : std::abs(x); }

// Entry j of the Hadamard transform of x[begin, begin + n), by halves: H_2n = [[H_n, H_n], [H_n, -H_n]].
inline float rotated_entry(const float* x, int begin, int n, unsigned j) {
  if (n == 1) return x[begin] * ((0xD7E8 >> begin) & 1 ? -0.25f : 0.25f);
  const float low = rotated_entry(x, begin, n / 2, j), high = rotated_entry(x, begin + n / 2, n / 2, j);
  return j & static_cast<unsigned>(n / 2) ? low - high : low + high;
}

inline ReferenceCopy reference_copy(const QuantFormat& f, bool columnwise, const Matrix& x, float given) {
  const int64_t outer = columnwise ? x.k : x.m, inner = columnwise ? x.m : x.k;
  std::vector<float> source;  // [outer,inner]
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) source.push_back(columnwise ? x.at(i, o) : x.at(o, i));
  if (f.hadamard)
    for (size_t i = 0; i < source.size(); i += 16) {
      float y[16];
      for (unsigned j = 0; j < 16; ++j) y[j] = to_float(to_bf16(rotated_entry(source.data() + i, 0, 16, j)));
      std::copy(y, y + 16, source.begin() + static_cast<int64_t>(i));
    }

  ReferenceCopy out;
  for (float v : source) out.amax = std::max(out.amax, magnitude_or_zero(v));
  const bool e4m3 = f.element == DType::kE4M3;
  const ElementFormat element = e4m3 ? kE4M3Format : f.element == DType::kE5M2 ? kE5M2Format : kE2M1Format;
  const std::vector<uint32_t> first = element.first_bits();
  const float fp_max = e4m3 ? 448.0f : 57344.0f, largest = 0x1.fffffep127f;
  const auto current = [&](float amax, float for_inf) {
    if (amax == 0 || std::isinf(amax)) return 1.0f;
    float s = fp_max / amax;
    if (std::isinf(s)) s = for_inf;
    return f.rule == ScaleRule::kCurrentPow2 ? std::bit_cast<float>(std::bit_cast<uint32_t>(s) & 0xff800000u) : s;
  };
  float encode_tensor = std::min(2688.0f / out.amax, largest);
  if (out.amax == 0 || encode_tensor == 0) encode_tensor = 1;
  const float decode_tensor = 1.0f / encode_tensor;

  const int64_t across = f.blocking == Blocking::kTensor ? 1 : ceil_div(inner, f.block);
  const int64_t down = f.blocking == Blocking::kTensor ? 1
                       : f.blocking == Blocking::kRow  ? outer
                                                       : ceil_div(outer, f.block);
  const int64_t height = f.blocking == Blocking::kTensor ? outer : f.blocking == Blocking::kRow ? 1 : f.block;
  const int64_t width = f.blocking == Blocking::kTensor ? inner : f.block;
  out.codes.resize(source.size());
  for (int64_t bo = 0; bo < down; ++bo)
    for (int64_t bi = 0; bi < across; ++bi) {
      float amax = 0, scale = 1;
      const auto each = [&](auto&& body) {
        for (int64_t o = bo * height; o < std::min(outer, (bo + 1) * height); ++o)
          for (int64_t i = bi * width; i < std::min(inner, (bi + 1) * width); ++i)
            body(static_cast<size_t>(o * inner + i));
      };
      each([&](size_t i) { amax = std::max(amax, magnitude_or_zero(source[i])); });
      if (f.rule == ScaleRule::kE8M0) {
        int exponent = 0;
        while (exponent < 254 && amax > fp_max * ElementFormat::power_of_two(exponent - 127)) ++exponent;
        scale = static_cast<float>(std::ldexp(1.0, 127 - exponent));
        out.scales.push_back(static_cast<uint32_t>(exponent));
      } else if (f.rule == ScaleRule::kNvfp4) {
        const uint32_t byte = kE4M3Format.encode(std::min(amax * (encode_tensor * (1.0f / 6.0f)), largest));
        scale = std::min(1.0f / (static_cast<float>(kE4M3Format.value(byte)) * decode_tensor), largest);
        out.scales.push_back(byte);
      } else {
        const float for_inf = f.blocking != Blocking::kTensor && x.is_bf16 ? 0x1.fep127f : largest;
        scale = f.rule == ScaleRule::kGiven ? given : current(amax, for_inf);
        out.scales.push_back(std::bit_cast<uint32_t>(1.0f / scale));
      }
      each([&](size_t i) { out.codes[i] = static_cast<uint8_t>(element.encode(source[i] * scale, first)); });
    }
  return out;
}

inline const std::vector<QuantFormat>& all_formats() {
  static const std::vector<QuantFormat> formats = [] {
    std::vector<QuantFormat> list;
    for (DType e : {DType::kE4M3, DType::kE5M2}) {
      for (ScaleRule r : {ScaleRule::kGiven, ScaleRule::kCurrent, ScaleRule::kCurrentPow2})
        list.push_back({.element = e, .rule = r, .blocking = Blocking::kTensor});
      for (Blocking b : {Blocking::kRow, Blocking::kTile}) {
        list.push_back({.element = e, .rule = ScaleRule::kCurrent, .blocking = b, .block = 128});
        list.push_back({.element = e, .rule = ScaleRule::kCurrentPow2, .blocking = b, .block = 128});
        list.push_back({.element = e, .rule = ScaleRule::kE8M0, .blocking = b, .block = 32});
      }
    }
    for (Blocking b : {Blocking::kRow, Blocking::kTile})
      list.push_back({.element = DType::kE2M1, .rule = ScaleRule::kNvfp4, .blocking = b, .block = 16});
    return list;
  }();
  return formats;
}

inline std::string describe(const QuantFormat& f) {
  return fmt::format("{} rule {} blocking {} block {}{}", name_of(f.element), static_cast<int>(f.rule),
                     static_cast<int>(f.blocking), f.block, f.hadamard ? " hadamard" : "");
}

}  // namespace mantissa::test
