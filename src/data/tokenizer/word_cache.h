// What short pieces of text were encoded to: a table of fixed size, two entries a set, the newer one first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

// Pieces of 1 to 8 * kWords - 1 bytes, up to kIds tokens each.
template <int kWords, int kIds>
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 8 * kWords - 1;
  static constexpr int kMaxIds = kIds;

  // The piece, zeros, and its length in the last byte.
  using Key = std::array<uint64_t, kWords>;

  struct Entry {
    Key key{};  // a key has a length, so the empty entry matches none
    std::array<int32_t, kIds> ids{};
    int count() const {  // unused places are negative and stand at the end
      int n = 1;
      for (int i = 1; i < kIds; ++i) n += ids[static_cast<size_t>(i)] >= 0;
      return n;
    }
  };

  explicit WordCache(int set_bits) : shift_(64 - set_bits), sets_(size_t{1} << set_bits) {}

  // 1 <= size <= kMaxBytes. Reads past the piece when `readable` bytes from p on are readable.
  static Key key_of(const char* p, size_t size, size_t readable) {
    Key key{};
    if (readable >= sizeof(Key)) {
      std::memcpy(key.data(), p, sizeof(Key));
      for (size_t word = 0; word < kWords; ++word) {
        const size_t begin = word * 8;
        if (size <= begin) {
          key[word] = 0;
        } else if (size < begin + 8) {
          key[word] &= ~uint64_t{0} >> (64 - (size - begin) * 8);
        }
      }
    } else {
      std::memcpy(key.data(), p, size);
    }
    key[kWords - 1] |= static_cast<uint64_t>(size) << 56;
    return key;
  }

  // The entry of a key, or nullptr.
  const Entry* find(const Key& key) const {
    const Set& set = sets_[set_of(key)];
    if (same(set[0].key, key)) return &set[0];
    if (same(set[1].key, key)) return &set[1];
    return nullptr;
  }

  // 1 <= count <= kMaxIds.
  void put(const Key& key, const int32_t* ids, size_t count) {
    Set& set = sets_[set_of(key)];
    set[1] = set[0];
    set[0].key = key;
    set[0].ids.fill(-1);
    std::copy(ids, ids + count, set[0].ids.begin());
  }

 private:
  using Set = std::array<Entry, 2>;

  static bool same(const Key& a, const Key& b) {  // without a call of memcmp
    uint64_t difference = 0;
    for (size_t word = 0; word < kWords; ++word) difference |= a[word] ^ b[word];
    return difference == 0;
  }

  size_t set_of(const Key& key) const {
    uint64_t hash = 0;
    for (const uint64_t word : key) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash * 0x9E3779B97F4A7C15u >> shift_);
  }

  int shift_;
  std::vector<Set> sets_;
};

}  // namespace mantissa::tokenizer
