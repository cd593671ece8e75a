// The merges of a BPE: for two tokens side by side, the rank of their merge and the token that it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mantissa::tokenizer {

struct Merge {
  uint32_t rank;  // lower ranks merge first; kNoRank: the two do not merge
  int32_t id;
};

class Merges {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  void reserve(size_t count);
  // A pair that is given twice keeps the later rank.
  void set(int32_t left, int32_t right, Merge merge);

  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = place_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.merge;
      if (slot.key == kEmpty) return {kNoRank, -1};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are not negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge = {kNoRank, -1};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place_of(uint64_t key) const { return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_); }
  void resize(int bits);

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  size_t mask_ = 1, count_ = 0;
  int shift_ = 63;
};

}  // namespace mantissa::tokenizer
