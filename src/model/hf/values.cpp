#include "model/hf/values.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"

namespace mantissa::hf {
namespace {

// Values that pass through a thread's stack at a time.
constexpr int64_t kPiece = 4096;
constexpr int64_t kTile = 64;  // rows and columns of a transposition
// Elements of a buffer on their way to a file.
constexpr int64_t kBuffer = int64_t{1} << 21;

enum class Source : uint8_t { kF32, kF16, kBF16 };

Source source_of(const safetensors::View& view) {
  if (view.dtype == "F32") return Source::kF32;
  if (view.dtype == "F16") return Source::kF16;
  check(view.dtype == "BF16", "values of dtype {}", view.dtype);
  return Source::kBF16;
}

// IEEE binary16 to binary32, exact, without branches.
inline float from_half(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + (112u << 23);
  const float subnormal = std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
  uint32_t bits = exponent == 0x0f800000u ? normal + (112u << 23) : normal;
  bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : bits;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(h & 0x8000u) << 16);
}

// `n` values from element `begin` of the tensor on.
void read(const std::byte* data, Source source, int64_t begin, int64_t n, float* out) {
  if (source == Source::kF32) {
    std::memcpy(out, data + 4 * begin, static_cast<size_t>(n) * 4);
    return;
  }
  const std::byte* in = data + 2 * begin;
  if (source == Source::kBF16) {
    for (int64_t i = 0; i < n; ++i) {
      uint16_t bits;
      std::memcpy(&bits, in + 2 * i, 2);
      out[i] = to_float(bf16{bits});
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      uint16_t bits;
      std::memcpy(&bits, in + 2 * i, 2);
      out[i] = from_half(bits);
    }
  }
}

void round_bf16(float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = to_float(to_bf16(values[i]));
}

// Calls visit(at, values, n) for pieces that cover the match's rows [first, first + count), `at` elements behind the
// parameter's first one; in parallel.
template <class Visit>
void visit_match(const Match& m, DType round_to, int64_t first, int64_t count, Visit&& visit) {
  const int64_t cols = m.spec->shape.rank() == 1 ? 1 : m.spec->shape[1], rows = m.part->rows;
  const int64_t base = m.part->row * cols;
  const std::byte* data = m.view->bytes.data();
  const Source source = source_of(*m.view);
  const bool rounds = round_to == DType::kBF16 && source != Source::kBF16;
  if (!m.part->transposed) {
    parallel_for(count * cols, kPiece, [&](int64_t begin, int64_t end) {
      alignas(64) float piece[kPiece];
      for (int64_t at = first * cols + begin; at < first * cols + end; at += kPiece) {
        const int64_t n = std::min(kPiece, first * cols + end - at);
        read(data, source, at, n, piece);
        if (rounds) round_bf16(piece, n);
        visit(base + at, piece, n);
      }
    });
    return;
  }
  parallel_for(count, kTile, [&](int64_t begin, int64_t end) {
    alignas(64) float in[kTile], tile[kTile * kTile];
    for (int64_t row = first + begin; row < first + end; row += kTile) {
      const int64_t height = std::min(kTile, first + end - row);
      for (int64_t col = 0; col < cols; col += kTile) {
        const int64_t width = std::min(kTile, cols - col);
        for (int64_t c = 0; c < width; ++c) {
          read(data, source, (col + c) * rows + row, height, in);
          if (rounds) round_bf16(in, height);
          for (int64_t r = 0; r < height; ++r) tile[r * kTile + c] = in[r];
        }
        for (int64_t r = 0; r < height; ++r) visit(base + (row + r) * cols + col, tile + r * kTile, width);
      }
    }
  });
}

// Calls visit(first, values) for pieces of rows [row, row + rows) of the updated parameter in host memory, `first` rows
// behind `row`; of a GPU's memory a copy of each.
template <class Visit>
void visit_updated(const ParamStore& params, int id, int64_t row, int64_t rows, int64_t piece_rows, Visit&& visit) {
  const Tensor all = params.updated(id);
  const int64_t cols = all.shape.rank() == 1 ? 1 : all.shape[1];
  const auto shape = [&](int64_t n) { return all.shape.rank() == 1 ? Shape{n} : Shape{n, cols}; };
  if (!params.options().device) {
    visit(0, all.slice(row, rows));
    return;
  }
  std::vector<std::byte> copy(static_cast<size_t>(bytes_of(all.dtype, std::min(piece_rows, rows) * cols)));
  for (int64_t at = 0; at < rows; at += piece_rows) {
    const int64_t n = std::min(piece_rows, rows - at);
    params.read_updated(id, (row + at) * cols, n * cols, copy.data());
    visit(at, Tensor(copy.data(), all.dtype, shape(n)));
  }
}

// Elements [begin, begin + n) as bytes of `dtype`, in parallel.
void cast_rows(const Tensor& from, int64_t begin, int64_t n, DType dtype, std::byte* out) {
  if (from.dtype == dtype) {
    const auto size = bytes_of(dtype, 1);
    parallel_for(n, kPiece, [&](int64_t b, int64_t e) {
      std::memcpy(out + b * size, static_cast<const std::byte*>(from.data) + (begin + b) * size,
                  static_cast<size_t>((e - b) * size));
    });
  } else if (dtype == DType::kBF16) {
    const float* in = from.as<float>() + begin;
    auto* to = reinterpret_cast<bf16*>(out);
    parallel_for(n, kPiece, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) to[i] = to_bf16(in[i]);
    });
  } else {
    const bf16* in = from.as<bf16>() + begin;
    auto* to = reinterpret_cast<float*>(out);
    parallel_for(n, kPiece, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) to[i] = to_float(in[i]);
    });
  }
}

// Columns [col, col + width) of all rows, as rows of the transposed tensor.
template <class In, class Out>
void transpose(const In* in, int64_t cols, int64_t rows, int64_t col, int64_t width, Out* out) {
  parallel_for(width, kTile, [&](int64_t begin, int64_t end) {
    for (int64_t r0 = 0; r0 < rows; r0 += kTile)
      for (int64_t c = begin; c < end; ++c)
        for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
          out[c * rows + r] = from_float<Out>(to_float(in[r * cols + col + c]));
  });
}

template <class Out>
void transpose_any(const Tensor& from, int64_t cols, int64_t col, int64_t width, Out* out) {
  if (from.dtype == DType::kF32)
    transpose(from.as<float>(), cols, from.dim(0), col, width, out);
  else
    transpose(from.as<bf16>(), cols, from.dim(0), col, width, out);
}

// Rows of a parameter that a buffer of about kBuffer elements takes.
int64_t rows_of_buffer(int64_t cols) { return std::max<int64_t>(1, kBuffer / cols); }

}  // namespace

bool is_float(const safetensors::View& view) {
  return view.dtype == "F32" || view.dtype == "F16" || view.dtype == "BF16";
}

bool same_values(const safetensors::View& a, const safetensors::View& b) {
  if (a.shape != b.shape || !is_float(a) || !is_float(b)) return false;
  const Source source_a = source_of(a), source_b = source_of(b);
  std::atomic<bool> same = true;
  parallel_for(a.elements(), kPiece, [&](int64_t begin, int64_t end) {
    alignas(64) float x[kPiece], y[kPiece];
    for (int64_t at = begin; at < end && same; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      read(a.bytes.data(), source_a, at, n, x);
      read(b.bytes.data(), source_b, at, n, y);
      int64_t equal = 0;
      for (int64_t i = 0; i < n; ++i) equal += x[i] == y[i];
      if (equal != n) same = false;
    }
  });
  return same;
}

NonFinite count_nonfinite(const safetensors::View& view) {
  const Source source = source_of(view);
  std::atomic<int64_t> nan = 0, inf = 0;
  parallel_for(view.elements(), kPiece, [&](int64_t begin, int64_t end) {
    alignas(64) float x[kPiece];
    int64_t nans = 0, infs = 0;
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      read(view.bytes.data(), source, at, n, x);
      for (int64_t i = 0; i < n; ++i) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        nans += magnitude > 0x7f800000u;
        infs += magnitude == 0x7f800000u;
      }
    }
    nan += nans, inf += infs;
  });
  return {nan, inf};
}

void load_match(const Match& m, ParamWriter& writer, DType round_to) {
  const int64_t cols = m.spec->shape.rank() == 1 ? 1 : m.spec->shape[1], base = m.part->row * cols;
  writer.write(m.param, base, m.part->rows * cols, cols, [&](int64_t first, int64_t count) {
    visit_match(m, round_to, (first - base) / cols, count / cols,
                [&](int64_t at, const float* values, int64_t n) { writer.put(at, values, n); });
  });
}

bool holds_match(const Match& m, const ParamStore& params, DType round_to) {
  const int64_t cols = m.spec->shape.rank() == 1 ? 1 : m.spec->shape[1];
  std::atomic<bool> same = true;
  visit_updated(
      params, m.param, m.part->row, m.part->rows, rows_of_buffer(cols), [&](int64_t first, const Tensor& held) {
        const int64_t base = (m.part->row + first) * cols;
        visit_match(m, round_to, first, held.dim(0), [&](int64_t at, const float* values, int64_t n) {
          bool equal = true;
          if (held.dtype == DType::kF32) {
            equal = std::memcmp(held.as<float>() + at - base, values, static_cast<size_t>(n) * sizeof(float)) == 0;
          } else {
            const bf16* bits = held.as<bf16>() + at - base;
            for (int64_t i = 0; i < n; ++i) equal &= bits[i].bits == to_bf16(values[i]).bits;
          }
          if (!equal) same = false;
        });
      });
  return same;
}

void write_part(const ParamStore& params, int id, const HfPart& part, DType dtype,
                const std::function<void(std::span<const std::byte>)>& take) {
  const Shape& shape = params.spec(id).shape;
  const int64_t cols = shape.rank() == 1 ? 1 : shape[1], size = bytes_of(dtype, 1);
  // A transposed part is read column by column: all of its rows at once.
  const int64_t piece_rows = part.transposed ? part.rows : rows_of_buffer(cols);
  visit_updated(params, id, part.row, part.rows, piece_rows, [&](int64_t, const Tensor& from) {
    const int64_t rows = from.dim(0), count = rows * cols;
    if (!part.transposed && from.dtype == dtype) {
      take({static_cast<const std::byte*>(from.data), static_cast<size_t>(count * size)});
      return;
    }
    // Whole rows of the folder's tensor at a time, at least one.
    const int64_t width = part.transposed ? rows : 1, lines = part.transposed ? cols : count;
    const int64_t most = std::max<int64_t>(1, kBuffer / width);
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(most, lines) * width * size));
    for (int64_t at = 0; at < lines; at += most) {
      const int64_t n = std::min(most, lines - at);
      if (!part.transposed)
        cast_rows(from, at, n, dtype, buffer.data());
      else if (dtype == DType::kF32)
        transpose_any(from, cols, at, n, reinterpret_cast<float*>(buffer.data()));
      else
        transpose_any(from, cols, at, n, reinterpret_cast<bf16*>(buffer.data()));
      take({buffer.data(), static_cast<size_t>(n * width * size)});
    }
  });
}

}  // namespace mantissa::hf
