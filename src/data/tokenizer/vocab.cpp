#include "data/tokenizer/vocab.h"

#include <cstring>

#include "data/tokenizer/byte_alphabet.h"

namespace mantissa::tokenizer {
namespace {

constexpr uint64_t kMix = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio

uint64_t fold(uint64_t value) {
  value *= kMix;
  return value ^ value >> 32;
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = fold(hash ^ word);
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, p, left);
    hash = fold(hash ^ word);
  }
  return fold(hash);
}

void Vocab::reserve(size_t tokens, size_t bytes) {
  blob_.reserve(bytes);
  spans_.reserve(tokens);
  while (slots_.size() < tokens * 2) grow();
}

void Vocab::grow() {
  const size_t slots = slots_.empty() ? 1024 : slots_.size() * 2;
  std::vector<int32_t> old(slots, -1);
  old.swap(slots_);
  for (const int32_t id : old) {
    if (id >= 0) place(id);
  }
}

void Vocab::place(int32_t id) {
  const size_t mask = slots_.size() - 1;
  size_t at = hash_bytes(bytes(id)) & mask;
  while (slots_[at] >= 0) at = (at + 1) & mask;
  slots_[at] = id;
}

bool Vocab::add(std::string_view spelling, int32_t id) {
  if (known(id)) return false;
  const size_t offset = blob_.size();
  const bool raw = !append_spelled(blob_, spelling);
  if (raw) {
    if (!raw_.emplace(spelling, id).second) return false;
    blob_ += spelling;
  } else if (find_bytes(std::string_view(blob_).substr(offset)) >= 0) {
    blob_.resize(offset);
    return false;
  }
  const size_t place_of_id = static_cast<size_t>(id);
  if (spans_.size() <= place_of_id) {
    spans_.resize(place_of_id + 1);
    is_raw_.resize(place_of_id + 1);
  }
  spans_[place_of_id] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(blob_.size() - offset)};
  is_raw_[place_of_id] = raw;
  ++count_;
  if (raw) return true;
  if (static_cast<size_t>(count_) * 2 > slots_.size()) grow();
  place(id);
  return true;
}

void Vocab::set_bytes(int32_t id, std::string_view bytes) {
  const size_t place_of_id = static_cast<size_t>(id);
  if (known(id) && !is_raw_[place_of_id]) return;
  if (spans_.size() <= place_of_id) {
    spans_.resize(place_of_id + 1);
    is_raw_.resize(place_of_id + 1);
  }
  spans_[place_of_id] = {static_cast<uint32_t>(blob_.size()), static_cast<uint32_t>(bytes.size())};
  blob_ += bytes;
}

int32_t Vocab::find_bytes(std::string_view text) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_bytes(text) & mask; slots_[at] >= 0; at = (at + 1) & mask) {
    if (bytes(slots_[at]) == text) return slots_[at];
  }
  return -1;
}

int32_t Vocab::find_spelling(std::string_view spelling) const {
  std::string text;
  if (append_spelled(text, spelling)) return find_bytes(text);
  const auto at = raw_.find(std::string(spelling));
  return at == raw_.end() ? -1 : at->second;
}

int32_t Vocab::find_joined(int32_t left, int32_t right) const {
  const bool left_raw = is_raw_[static_cast<size_t>(left)], right_raw = is_raw_[static_cast<size_t>(right)];
  if (!left_raw && !right_raw) return find_bytes(std::string(bytes(left)).append(bytes(right)));
  std::string spelling = left_raw ? std::string(bytes(left)) : spell(bytes(left));
  spelling += right_raw ? std::string(bytes(right)) : spell(bytes(right));
  return find_spelling(spelling);
}

}  // namespace mantissa::tokenizer
