// What the choice of a product's algorithm depends on, and its words: "wgrad bf16 4096x2048x16384 to bf16 accumulate".
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/gemm.h"

namespace mantissa::cuda {

constexpr int kGemmAlignment = 16;  // bytes; no algorithm asks for more

// c[M,N] = a[M,K] · b[N,K]ᵀ + bias + c.
struct GemmKey {
  bool a_transposed = false, b_transposed = false;  // not with codes: FP8 products run along both sides' rows alone
  DType a = DType::kBF16, b = DType::kBF16, out = DType::kBF16;      // sides F32, BF16, E4M3 or E5M2
  GemmScale a_scale = GemmScale::kNone, b_scale = GemmScale::kNone;  // of codes
  bool fast = false;                                                 // sums may keep fewer bits than FP32 has
  bool bias = false;                                                 // of `out`'s dtype
  bool accumulate = false;
  bool alpha = false;  // a factor of the product, read in the device's memory
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0;  // elements from one stored row of a to the next
  int align_a = kGemmAlignment, align_b = kGemmAlignment, align_c = kGemmAlignment;  // bytes, a power of two

  int64_t dense_stride() const { return a_transposed ? m : k; }
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
  auto operator<=>(const GemmKey&) const = default;
};

struct GemmKeyHash {
  size_t operator()(const GemmKey& key) const;
};

// The greatest power of two up to kGemmAlignment that divides the address.
int alignment_of(const void* p);

// "LAYOUT A[,B] MxNxK to OUT [scaled A B] [fast] [bias] [accumulate] [alpha] [stride N] [aligned A B C]"; LAYOUT is
// fprop (neither side transposed), dgrad (b), wgrad (both) or left (a); B is named where it is not A's dtype.
std::string words_of(const GemmKey& key);
std::optional<GemmKey> parse_gemm_key(std::string_view words);

}  // namespace mantissa::cuda
