#include "data/tokenizer/merges.h"

namespace mantissa::tokenizer {

void Merges::resize(int bits) {
  std::vector<Slot> old(size_t{1} << bits);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  shift_ = 64 - bits;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t at = place_of(slot.key);
    while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = slot;
  }
}

void Merges::reserve(size_t count) {
  int bits = 64 - shift_;
  while ((size_t{1} << bits) < count * 2) ++bits;
  if (bits != 64 - shift_) resize(bits);
}

void Merges::set(int32_t left, int32_t right, Merge merge) {
  if ((count_ + 1) * 2 > slots_.size()) resize(64 - shift_ + 1);
  const uint64_t key = key_of(left, right);
  size_t at = place_of(key);
  while (slots_[at].key != kEmpty && slots_[at].key != key) at = (at + 1) & mask_;
  count_ += slots_[at].key == kEmpty;
  slots_[at] = {key, merge};
}

}  // namespace mantissa::tokenizer
