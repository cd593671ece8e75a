// Casts of one panel: amax of every block, scales, codes, and the copies as they lie in memory.
#include "ops/cpu/quantize.h"

#include <cstring>
#include <type_traits>

#include "ops/cpu/quantize_source.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int kP = static_cast<int>(kPanel);

// Element codecs; `random` is read by stochastic rounding alone.
struct ToE4M3 {
  static MANTISSA_HD uint8_t encode(float x, uint8_t) { return encode_e4m3(x); }
};
struct ToE5M2 {
  static MANTISSA_HD uint8_t encode(float x, uint8_t) { return encode_e5m2(x); }
};
struct ToE2M1 {
  static MANTISSA_HD uint8_t encode(float x, uint8_t) { return encode_e2m1(x); }
};
struct ToE2M1Stochastic {
  static MANTISSA_HD uint8_t encode(float x, uint8_t random) { return encode_e2m1_stochastic(x, random); }
};

// ---- amax of blocks ----

template <class T, int block>
void row_amax(const T* row, float* amax) {
  constexpr int wide = 64 / sizeof(T), lanes = block < wide ? block : wide;
  for (int b = 0; b < kP / block; ++b) {
    Key<T> most[lanes];
    for (int c = 0; c < lanes; ++c) most[c] = Order<T>::key(row[b * block + c]);
    for (int i = lanes; i < block; i += lanes) {
#pragma omp simd
      for (int c = 0; c < lanes; ++c) {
        const Key<T> a = Order<T>::key(row[b * block + i + c]), m = most[c];
        most[c] = a > m ? a : m;
      }
    }
    Key<T> all = Order<T>::kZero;
#pragma omp simd reduction(max : all)
    for (int c = 0; c < lanes; ++c) all = most[c] > all ? most[c] : all;
    amax[b] = Order<T>::value(all);
  }
}

// Down the columns of `rows` rows.
template <class T, int rows>
void column_amax(const T* x, int64_t ld, float* amax) {
  constexpr int lanes = 64 / sizeof(T);
  for (int c0 = 0; c0 < kP; c0 += lanes) {
    Key<T> most[lanes];
    for (int c = 0; c < lanes; ++c) most[c] = Order<T>::kZero;
    for (int r = 0; r < rows; ++r) {
      const T* row = x + r * ld + c0;
#pragma omp simd
      for (int c = 0; c < lanes; ++c) {
        const Key<T> a = Order<T>::key(row[c]), m = most[c];
        most[c] = a > m ? a : m;
      }
    }
#pragma omp simd
    for (int c = 0; c < lanes; ++c) amax[c0 + c] = Order<T>::value(most[c]);
  }
}

// ---- scales of n blocks ----

// From panel.amax[0..n): panel.block_multiplier and what is stored, scale_inv (F32 rules) or scale_byte (E8M0, E4M3).
void make_scales(const QuantizeForm& form, bool is_bf16, int n, QuantizePanel& panel) {
  const bool e4m3 = form.format.element == DType::kE4M3;
  const float* amax = panel.amax;
  float* multiplier = panel.block_multiplier;
  switch (form.format.rule) {
    case ScaleRule::kE8M0: {
      const float inverse_max = e4m3 ? kInverseMaxE4M3 : kInverseMaxE5M2;
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        const uint8_t exponent = mxfp8_exponent(amax[i], inverse_max);
        panel.scale_byte[i] = exponent;
        multiplier[i] = reciprocal_e8m0(exponent);
      }
      break;
    }
    case ScaleRule::kNvfp4: {
      const float per_block = form.nvfp4.per_block, decode = form.nvfp4.decode;
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        const uint8_t scale = nvfp4_block_scale(amax[i], per_block);
        panel.scale_byte[i] = scale;
        multiplier[i] = nvfp4_encode_scale(scale, decode);
      }
      break;
    }
    default: {
      const bool pow2 = form.format.rule == ScaleRule::kCurrentPow2;
      const float fp_max = e4m3 ? kMaxE4M3 : kMaxE5M2, for_inf = is_bf16 ? kScaleForInfBF16 : kScaleForInfF32;
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        const float scale = compute_scale_from_amax(amax[i], fp_max, pow2, for_inf);
        multiplier[i] = scale;
        panel.scale_inv[i] = 1.0f / scale;
      }
    }
  }
}

// Stores scales [begin, begin + n) of the panel at index first + i * stride of the copy's.
void store_scales(const QuantizeForm& form, const QuantizePanel& panel, int begin, int n, int64_t first,
                  int64_t stride) {
  if (form.format.rule == ScaleRule::kE8M0 || form.format.rule == ScaleRule::kNvfp4) {
    auto* out = static_cast<uint8_t*>(form.scale_inv) + first;
    for (int i = 0; i < n; ++i) out[i * stride] = panel.scale_byte[begin + i];
  } else {
    auto* out = static_cast<float*>(form.scale_inv) + first;
    for (int i = 0; i < n; ++i) out[i * stride] = panel.scale_inv[begin + i];
  }
}

// Repeats each of the 128 / block entries `block` times.
template <int block>
void spread(const float* entry, float* row) {
  for (int b = 0; b < kP / block; ++b) {
    const float value = entry[b];
#pragma omp simd
    for (int c = 0; c < block; ++c) row[b * block + c] = value;
  }
}

// The largest of each `block` consecutive entries.
template <int block>
void fold(const float* amax, float* most) {
  for (int b = 0; b < kP / block; ++b) {
    float here = 0;
#pragma omp simd reduction(max : here)
    for (int c = 0; c < block; ++c) here = amax[b * block + c] > here ? amax[b * block + c] : here;
    most[b] = here;
  }
}

// Calls body(integral_constant) for the block sizes there are.
template <class Body>
MANTISSA_HD void with_block(int block, Body&& body) {
  if (block == 16) return body(std::integral_constant<int, 16>{});
  if (block == 32) return body(std::integral_constant<int, 32>{});
  body(std::integral_constant<int, 128>{});
}

// ---- one panel ----

struct Place {
  int64_t m0, k0;
  int rows, cols;  // inside the matrix
};

// Fills panel.multiplier, one row of 128 for each block row (each row for rowwise 1 x block), and stores the block
// scales. Returns the number of panel rows that share a row of multipliers.
template <class T, int block>
int scale_blocks(const QuantizeJob& job, const QuantizeForm& form, const Place& at, const T* x, int64_t ld,
                 QuantizePanel& panel) {
  constexpr int per_row = kP / block;
  const int across = static_cast<int>(ceil_div(at.cols, block)), down = static_cast<int>(ceil_div(at.rows, block));
  const int64_t m_blocks = ceil_div(job.m, block), k_blocks = ceil_div(job.k, block);
  if (form.format.blocking == Blocking::kRow && !form.columnwise) {
    for (int r = 0; r < at.rows; ++r) row_amax<T, block>(x + r * ld, panel.amax + r * per_row);
    make_scales(form, job.is_bf16, at.rows * per_row, panel);
    for (int r = 0; r < at.rows; ++r) {
      store_scales(form, panel, r * per_row, across, (at.m0 + r) * k_blocks + at.k0 / block, 1);
      spread<block>(panel.block_multiplier + r * per_row, panel.multiplier + r * kP);
    }
    return 1;
  }
  if (form.format.blocking == Blocking::kRow) {
    for (int b = 0; b < down; ++b) column_amax<T, block>(x + b * block * ld, ld, panel.amax + b * kP);
    make_scales(form, job.is_bf16, down * kP, panel);
    for (int b = 0; b < down; ++b)
      store_scales(form, panel, b * kP, at.cols, at.k0 * m_blocks + at.m0 / block + b, m_blocks);
    std::memcpy(panel.multiplier, panel.block_multiplier, static_cast<size_t>(down * kP) * sizeof(float));
    return block;
  }
  for (int b = 0; b < down; ++b) {
    float columns[kP];
    column_amax<T, block>(x + b * block * ld, ld, columns);
    fold<block>(columns, panel.amax + b * per_row);
  }
  make_scales(form, job.is_bf16, down * per_row, panel);
  for (int b = 0; b < down; ++b) {
    const int64_t m_block = at.m0 / block + b, k_block = at.k0 / block;
    const int64_t first = form.columnwise ? k_block * m_blocks + m_block : m_block * k_blocks + k_block;
    store_scales(form, panel, b * per_row, across, first, form.columnwise ? m_blocks : 1);
    spread<block>(panel.block_multiplier + b * per_row, panel.multiplier + b * kP);
  }
  return block;
}

template <class T>
int scale_panel(const QuantizeJob& job, const QuantizeForm& form, const Place& at, const T* x, int64_t ld,
                QuantizePanel& panel) {
  int shared = kP;
  if (form.format.blocking == Blocking::kTensor)
    for (int c = 0; c < kP; ++c) panel.multiplier[c] = form.tensor_scale;
  else
    with_block(form.format.block, [&](auto block) { shared = scale_blocks<T, block>(job, form, at, x, ld, panel); });
  return shared;
}

template <class Codec, class T>
void encode_panel(const T* x, int64_t ld, int rows, int rows_per_multiplier, QuantizePanel& panel) {
  for (int r = 0; r < rows; ++r) {
    const T* row = x + r * ld;
    const float* multiplier = panel.multiplier + r / rows_per_multiplier * kP;
    const uint8_t* random = panel.random + r * kP;
    uint8_t* codes = panel.codes + r * kP;
#pragma omp simd
    for (int c = 0; c < kP; ++c) codes[c] = Codec::encode(to_float(row[c]) * multiplier[c], random[c]);
  }
}

// ---- the copies in memory ----

void write_rows(const QuantizeForm& form, const QuantizeJob& job, const Place& at, QuantizePanel& panel) {
  if (form.format.element != DType::kE2M1) {
    for (int r = 0; r < at.rows; ++r)
      std::memcpy(form.data + (at.m0 + r) * job.k + at.k0, panel.codes + r * kP, static_cast<size_t>(at.cols));
    return;
  }
  for (int r = 0; r < at.rows; ++r) {
    const uint8_t* codes = panel.codes + r * kP;
    uint8_t packed[kP / 2];
#pragma omp simd
    for (int j = 0; j < kP / 2; ++j) packed[j] = pack_e2m1(codes[2 * j], codes[2 * j + 1]);
    std::memcpy(form.data + ((at.m0 + r) * job.k + at.k0) / 2, packed, static_cast<size_t>(at.cols / 2));
  }
}

// 8 x 8 bytes transposed in eight words: swaps of 4-, 2- and 1-byte corners. Lane i of the arrays is one such square.
void transpose_squares(uint64_t (&w)[8][kP / 8]) {
  constexpr uint64_t masks[3] = {0x00000000ffffffffu, 0x0000ffff0000ffffu, 0x00ff00ff00ff00ffu};
  for (int stage = 0; stage < 3; ++stage) {
    const int span = 4 >> stage, shift = 8 * span;
    for (int j = 0; j < 8; ++j) {
      if (j & span) continue;
#pragma omp simd
      for (int i = 0; i < kP / 8; ++i) {
        const uint64_t swap = ((w[j][i] >> shift) ^ w[j + span][i]) & masks[stage];
        w[j + span][i] ^= swap;
        w[j][i] ^= swap << shift;
      }
    }
  }
}

// out[128][rows] = in[rows][128] transposed; rows is a multiple of 8.
void transpose(const uint8_t* in, int rows, uint8_t* out) {
  for (int r = 0; r < rows; r += 8) {
    uint64_t w[8][kP / 8];
    std::memcpy(w, in + r * kP, sizeof w);
    transpose_squares(w);
    for (int i = 0; i < kP / 8; ++i)
      for (int j = 0; j < 8; ++j) std::memcpy(out + (8 * i + j) * rows + r, &w[j][i], 8);
  }
}

void write_columns(const QuantizeForm& form, const QuantizeJob& job, const Place& at, QuantizePanel& panel) {
  const bool packed = form.format.element == DType::kE2M1;
  const uint8_t* codes = panel.codes;
  const int rows = (at.rows + 15) / 16 * 16, stored = packed ? rows / 2 : rows;
  if (packed) {
    for (int r = 0; r < stored; ++r) {
      const uint8_t *even = codes + 2 * r * kP, *odd = even + kP;
#pragma omp simd
      for (int c = 0; c < kP; ++c) panel.random[r * kP + c] = pack_e2m1(even[c], odd[c]);
    }
    codes = panel.random;
  }
  transpose(codes, stored, panel.turned);
  const int64_t pitch = packed ? job.m / 2 : job.m, first = packed ? at.m0 / 2 : at.m0;
  const int bytes = packed ? at.rows / 2 : at.rows;
  for (int c = 0; c < at.cols; ++c)
    std::memcpy(form.data + (at.k0 + c) * pitch + first, panel.turned + c * stored, static_cast<size_t>(bytes));
}

template <class T>
void encode(const QuantizeForm& form, const T* x, int64_t ld, int rows, int rows_per_multiplier, QuantizePanel& panel) {
  switch (form.format.element) {
    case DType::kE4M3:
      return encode_panel<ToE4M3>(x, ld, rows, rows_per_multiplier, panel);
    case DType::kE5M2:
      return encode_panel<ToE5M2>(x, ld, rows, rows_per_multiplier, panel);
    default:
      return form.format.stochastic ? encode_panel<ToE2M1Stochastic>(x, ld, rows, rows_per_multiplier, panel)
                                    : encode_panel<ToE2M1>(x, ld, rows, rows_per_multiplier, panel);
  }
}

// Whether the second copy holds the codes of the first, turned.
bool same_codes(const QuantizeJob& job) {
  const QuantFormat& f = job.forms[0].format;
  return job.form_count == 2 && f == job.forms[1].format && f.blocking != Blocking::kRow &&
         job.forms[0].tensor_scale == job.forms[1].tensor_scale &&
         job.forms[0].nvfp4.encode == job.forms[1].nvfp4.encode;
}

template <class T>
void quantize_panel(const QuantizeJob& job, const Place& at, QuantizePanel& panel) {
  const auto* source = static_cast<const T*>(job.x) + at.m0 * job.k + at.k0;
  auto* tile = reinterpret_cast<T*>(panel.tile);
  const bool ragged = at.rows < kP || at.cols < kP;
  if (ragged) copy_padded(source, job.k, at.rows, at.cols, tile);
  for (int i = 0; i < job.form_count; ++i) {
    const QuantizeForm& form = job.forms[i];
    const T* x = ragged ? tile : source;
    int64_t ld = ragged ? kPanel : job.k;
    if constexpr (sizeof(T) == sizeof(bf16)) {
      if (form.format.hadamard) {
        rotate_panel(x, ld, tile);
        x = tile;
        ld = kPanel;
      }
    }
    const int rows_per_multiplier = scale_panel(job, form, at, x, ld, panel);
    // Whole pairs of rows are packed and whole squares turned: padding rows are cast too.
    const int rows = (at.rows + 15) / 16 * 16;
    if (i == 0 || !same_codes(job)) {
      if (form.format.stochastic) draw_bytes(form.key, job, at.m0, at.k0, rows, panel.random);
      if (rows_per_multiplier == 1) {
        for (int r = at.rows; r < rows; ++r)
          for (int c = 0; c < kP; ++c) panel.multiplier[r * kP + c] = 0;
      }
      encode(form, x, ld, rows, rows_per_multiplier, panel);
    }
    form.columnwise ? write_columns(form, job, at, panel) : write_rows(form, job, at, panel);
  }
}

}  // namespace

void quantize_panels(const QuantizeJob& job, int64_t begin, int64_t end, QuantizePanel& panel) {
  const int64_t across = ceil_div(job.k, kPanel);
  for (int64_t p = begin; p < end; ++p) {
    Place at{p / across * kPanel, p % across * kPanel, kP, kP};
    if (job.m - at.m0 < kPanel) at.rows = static_cast<int>(job.m - at.m0);
    if (job.k - at.k0 < kPanel) at.cols = static_cast<int>(job.k - at.k0);
    job.is_bf16 ? quantize_panel<bf16>(job, at, panel) : quantize_panel<float>(job, at, panel);
  }
}

uint32_t amax_of_rotated(const QuantizeJob& job, int64_t begin, int64_t end, QuantizePanel& panel) {
  const int64_t across = ceil_div(job.k, kPanel);
  auto* tile = reinterpret_cast<bf16*>(panel.tile);
  uint32_t most = 0;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t m0 = p / across * kPanel, k0 = p % across * kPanel;
    const int rows = static_cast<int>(job.m - m0 < kPanel ? job.m - m0 : kPanel);
    const int cols = static_cast<int>(job.k - k0 < kPanel ? job.k - k0 : kPanel);
    const auto* source = static_cast<const bf16*>(job.x) + m0 * job.k + k0;
    if (rows < kP || cols < kP) {
      copy_padded(source, job.k, rows, cols, tile);
      rotate_panel(tile, kPanel, tile);
    } else {
      rotate_panel(source, job.k, tile);
    }
    const uint32_t here = amax_of(tile, true, 0, kPanel * kPanel);
    most = here > most ? here : most;
  }
  return most;
}

uint32_t amax_of(const void* x, bool is_bf16, int64_t begin, int64_t end) {
  if (is_bf16) return flat_amax(static_cast<const bf16*>(x) + begin, end - begin);
  return flat_amax(static_cast<const float*>(x) + begin, end - begin);
}

}  // namespace mantissa::MANTISSA_ISA_NS
