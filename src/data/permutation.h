// A keyed permutation of [0, n) computed element by element: a Feistel network over the next power of four with
// cycle-walking (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), Philox as its round
// function. Nothing is stored, so a data cursor is one number and a jump costs nothing.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace mantissa {

class Permutation {
 public:
  // `stream` keeps the uses of one seed apart; `epoch` gives a new order each pass. n < 2^56.
  Permutation(uint64_t n, uint64_t seed, uint32_t stream, uint32_t epoch);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  uint64_t n_;
  RandomKey key_;
  int half_bits_;
};

}  // namespace mantissa
