#include "ops/cuda/gemm/key.h"

#include <fmt/core.h>

#include <bit>
#include <initializer_list>
#include <vector>

#include "base/text.h"

namespace mantissa::cuda {
namespace {

constexpr const char* kLayouts[] = {"fprop", "dgrad", "left", "wgrad"};  // [2 a_transposed + b_transposed]

bool parse_dtype(std::string_view word, std::initializer_list<DType> known, DType& dtype) {
  for (const DType one : known)
    if (word == name_of(one)) {
      dtype = one;
      return true;
    }
  return false;
}

bool parse_sides(std::string_view word, GemmKey& key) {
  const auto known = {DType::kF32, DType::kBF16, DType::kE4M3, DType::kE5M2};
  const std::vector<std::string> sides = split(word, ',');
  return sides.size() <= 2 && parse_dtype(sides.front(), known, key.a) && parse_dtype(sides.back(), known, key.b) &&
         (sides.size() == 1 || key.a != key.b);
}

bool parse_scale(std::string_view word, GemmScale& scale) {
  for (const GemmScale one : {GemmScale::kTensor, GemmScale::kRow128, GemmScale::kTile128})
    if (word == name_of(one)) {
      scale = one;
      return true;
    }
  return false;
}

bool is_code(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

// Codes have scales, run along rows, and come in pairs; other sides have none.
bool holds_together(const GemmKey& key) {
  const bool codes = is_code(key.a);
  if (is_code(key.b) != codes || (key.a_scale != GemmScale::kNone) != codes ||
      (key.b_scale != GemmScale::kNone) != codes)
    return false;
  const bool one_scale = key.a_scale == GemmScale::kTensor && key.b_scale == GemmScale::kTensor;
  if ((key.fast && !one_scale) || (key.alpha && codes)) return false;
  return codes ? !key.a_transposed && !key.b_transposed : key.a == key.b;
}

bool parse_alignment(std::string_view word, int& bytes) {
  int64_t value = 0;
  if (!parse_int(word, value) || value < 1 || value > kGemmAlignment) return false;
  bytes = static_cast<int>(value);
  return std::has_single_bit(static_cast<unsigned>(bytes));
}

bool parse_count(std::string_view word, int64_t& value) { return parse_int(word, value) && value > 0; }

}  // namespace

size_t GemmKeyHash::operator()(const GemmKey& key) const {
  const uint64_t flags = static_cast<uint64_t>(key.a_transposed) | static_cast<uint64_t>(key.b_transposed) << 1 |
                         static_cast<uint64_t>(key.bias) << 2 | static_cast<uint64_t>(key.accumulate) << 3 |
                         static_cast<uint64_t>(key.a) << 4 | static_cast<uint64_t>(key.b) << 8 |
                         static_cast<uint64_t>(key.out) << 12 | static_cast<uint64_t>(key.fast) << 16 |
                         static_cast<uint64_t>(key.align_a) << 20 | static_cast<uint64_t>(key.align_b) << 28 |
                         static_cast<uint64_t>(key.align_c) << 36 | static_cast<uint64_t>(key.a_scale) << 44 |
                         static_cast<uint64_t>(key.b_scale) << 48 | static_cast<uint64_t>(key.alpha) << 52;
  uint64_t hash = 0;
  for (const uint64_t part : {flags, static_cast<uint64_t>(key.m), static_cast<uint64_t>(key.n),
                              static_cast<uint64_t>(key.k), static_cast<uint64_t>(key.a_stride)}) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

int alignment_of(const void* p) {
  const auto low = reinterpret_cast<uintptr_t>(p) % kGemmAlignment;
  return low == 0 ? kGemmAlignment : 1 << std::countr_zero(low);
}

std::string words_of(const GemmKey& key) {
  std::string sides = name_of(key.a);
  if (key.b != key.a) sides += fmt::format(",{}", name_of(key.b));
  std::string words = fmt::format("{} {} {}x{}x{} to {}", kLayouts[2 * key.a_transposed + key.b_transposed], sides,
                                  key.m, key.n, key.k, name_of(key.out));
  if (key.a_scale != GemmScale::kNone || key.b_scale != GemmScale::kNone)
    words += fmt::format(" scaled {} {}", name_of(key.a_scale), name_of(key.b_scale));
  if (key.fast) words += " fast";
  if (key.bias) words += " bias";
  if (key.accumulate) words += " accumulate";
  if (key.alpha) words += " alpha";
  if (key.a_stride != key.dense_stride()) words += fmt::format(" stride {}", key.a_stride);
  if (key.align_a != kGemmAlignment || key.align_b != kGemmAlignment || key.align_c != kGemmAlignment)
    words += fmt::format(" aligned {} {} {}", key.align_a, key.align_b, key.align_c);
  return words;
}

std::optional<GemmKey> parse_gemm_key(std::string_view words) {
  const std::vector<std::string> w = split(words, ' ');
  GemmKey key;
  if (w.size() < 5 || w[3] != "to" || !parse_sides(w[1], key) ||
      !parse_dtype(w[4], {DType::kF32, DType::kBF16}, key.out))
    return std::nullopt;
  int layout = 0;
  while (layout < 4 && w[0] != kLayouts[layout]) ++layout;
  if (layout == 4) return std::nullopt;
  key.a_transposed = layout & 2, key.b_transposed = layout & 1;
  const std::vector<std::string> sizes = split(w[2], 'x');
  if (sizes.size() != 3 || !parse_count(sizes[0], key.m) || !parse_count(sizes[1], key.n) ||
      !parse_count(sizes[2], key.k))
    return std::nullopt;
  key.a_stride = key.dense_stride();
  size_t at = 5;
  if (at + 2 < w.size() && w[at] == "scaled") {
    if (!parse_scale(w[at + 1], key.a_scale) || !parse_scale(w[at + 2], key.b_scale)) return std::nullopt;
    at += 3;
  }
  if (at < w.size() && w[at] == "fast") key.fast = true, ++at;
  if (at < w.size() && w[at] == "bias") key.bias = true, ++at;
  if (at < w.size() && w[at] == "accumulate") key.accumulate = true, ++at;
  if (at < w.size() && w[at] == "alpha") key.alpha = true, ++at;
  if (at + 1 < w.size() && w[at] == "stride") {
    if (!parse_count(w[at + 1], key.a_stride)) return std::nullopt;
    at += 2;
  }
  if (at + 3 < w.size() && w[at] == "aligned") {
    if (!parse_alignment(w[at + 1], key.align_a) || !parse_alignment(w[at + 2], key.align_b) ||
        !parse_alignment(w[at + 3], key.align_c))
      return std::nullopt;
    at += 4;
  }
  if (at != w.size() || !holds_together(key)) return std::nullopt;
  return key;
}

}  // namespace mantissa::cuda
