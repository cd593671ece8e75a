#include "data/permutation.h"

#include "base/error.h"

namespace mantissa {
namespace {
constexpr int kRounds = 6;
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint32_t stream, uint32_t epoch)
    : n_(n), key_{.seed = seed, .step = epoch, .tensor = stream, .form = DrawForm::kOrder}, half_bits_(1) {
  check(n > 0 && n < uint64_t{1} << 56, "Permutation of {} elements", n);
  while (half_bits_ < 28 && uint64_t{1} << (2 * half_bits_) < n) ++half_bits_;
}

uint64_t Permutation::encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (draw(key_, round << 32 | right).x[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t i) const {
  check(i < n_, "Permutation: element {} of {}", i, n_);
  do i = encrypt(i);
  while (i >= n_);
  return i;
}

}  // namespace mantissa
