// The tokens of a byte-level BPE: the bytes of each id, and the id of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mantissa::tokenizer {

inline constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

// A multiply-and-fold hash of short byte strings.
uint64_t hash_bytes(std::string_view bytes);

class Vocab {
 public:
  void reserve(size_t tokens, size_t bytes);
  // `spelling` is the byte-level spelling; one that uses characters outside of it stands for its own UTF-8 bytes, and
  // no text is ever encoded to it. Returns false when id or spelling is taken. 0 <= id <= kMaxTokenId.
  bool add(std::string_view spelling, int32_t id);
  // Gives an id of an added token the bytes that it decodes to, without making them findable. An id that add() took
  // with a byte-level spelling keeps its bytes.
  void set_bytes(int32_t id, std::string_view bytes);

  int32_t find_bytes(std::string_view bytes) const;        // -1 when there is none
  int32_t find_spelling(std::string_view spelling) const;  // -1 when there is none
  // The id of two tokens' spellings end to end; -1 when there is none.
  int32_t find_joined(int32_t left, int32_t right) const;

  bool known(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[static_cast<size_t>(id)].size != kAbsent;
  }
  std::string_view bytes(int32_t id) const {  // of a known id
    const Span& span = spans_[static_cast<size_t>(id)];
    return {blob_.data() + span.offset, span.size};
  }
  int64_t size() const { return static_cast<int64_t>(spans_.size()); }  // largest id + 1
  int64_t count() const { return count_; }                              // of what add() took

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Span {
    uint32_t offset = 0, size = kAbsent;
  };

  void grow();
  void place(int32_t id);

  std::string blob_;
  std::vector<Span> spans_;                       // by id
  std::vector<int32_t> slots_;                    // ids, -1 empty; open addressing over hash_bytes
  std::unordered_map<std::string, int32_t> raw_;  // spellings that are not byte-level
  std::vector<bool> is_raw_;                      // by id
  int64_t count_ = 0;
};

}  // namespace mantissa::tokenizer
