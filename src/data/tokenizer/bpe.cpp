#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"

namespace mantissa::tokenizer {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

size_t pair_place(char left, char right) {
  return static_cast<size_t>(static_cast<uint8_t>(left)) << 8 | static_cast<uint8_t>(right);
}

}  // namespace

void BpeMerger::encode(std::string_view piece, std::vector<int32_t>& ids) {
  const auto unspelled = [&](char byte) { return model_.byte_ids[static_cast<uint8_t>(byte)] < 0; };
  if (!model_.unspelled.bytes.empty() && std::any_of(piece.begin(), piece.end(), unspelled)) {
    encode_unspelled(piece, ids);
  } else if (piece.size() <= kShort) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, ids);
  }
}

void BpeMerger::encode_short(std::string_view piece, std::vector<int32_t>& ids) {
  std::array<int32_t, kShort> symbols;
  std::array<Merge, kShort> pairs;  // of symbol i and the next
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = model_.byte_ids[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = model_.byte_pairs[pair_place(piece[i], piece[i + 1])];
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == Merges::kNoRank) break;
    symbols[best] = pairs[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      pairs[i - 1] = pairs[i];
    }
    --count;
    if (best > 0) pairs[best - 1] = model_.merges.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = model_.merges.find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<ptrdiff_t>(count));
}

// Notes the pair of the symbol at `left` and its successor, when they merge.
void BpeMerger::note_pair(uint32_t left) {
  const Merge merge = model_.merges.find(symbols_[left], symbols_[next_[left]]);
  if (merge.rank == Merges::kNoRank) return;
  if (merge.rank <= swept_rank_) {
    urgent_.push_back(static_cast<uint64_t>(merge.rank) << 32 | left);
    std::push_heap(urgent_.begin(), urgent_.end(), std::greater<>());
    return;
  }
  if (bucket_of_rank_.size() <= merge.rank) bucket_of_rank_.resize(merge.rank + 1, kNone);
  uint32_t& bucket = bucket_of_rank_[merge.rank];
  if (bucket == kNone) {
    if (free_buckets_.empty()) {
      free_buckets_.push_back(static_cast<uint32_t>(buckets_.size()));
      buckets_.emplace_back();
    }
    bucket = free_buckets_.back();
    free_buckets_.pop_back();
    ranks_.push_back(merge.rank);
    std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
  }
  buckets_[bucket].push_back(left);
}

void BpeMerger::merge_at(uint32_t left, int32_t id) {
  const uint32_t right = next_[left], behind = next_[right];
  symbols_[left] = id;
  symbols_[right] = -1;
  next_[left] = behind;
  if (behind != kNone) {
    previous_[behind] = left;
    note_pair(left);
  }
  if (previous_[left] != kNone) note_pair(previous_[left]);
}

// The bucket of the lowest rank, from left to right; false when there is none.
bool BpeMerger::take_bucket(std::vector<uint32_t>& places) {
  if (ranks_.empty()) return false;
  const uint32_t rank = ranks_.front();
  std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
  ranks_.pop_back();
  const uint32_t bucket = bucket_of_rank_[rank];
  places.clear();
  places.swap(buckets_[bucket]);
  free_buckets_.push_back(bucket);
  bucket_of_rank_[rank] = kNone;
  if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
  swept_rank_ = rank;
  return true;
}

// Whether the pair that was noted at `left` is still there.
bool BpeMerger::merges_with(uint32_t left, uint32_t rank, Merge& merge) const {
  if (symbols_[left] < 0 || next_[left] == kNone) return false;
  merge = model_.merges.find(symbols_[left], symbols_[next_[left]]);
  return merge.rank == rank;
}

void BpeMerger::encode_long(std::string_view piece, std::vector<int32_t>& ids) {
  symbols_.clear();
  for (const char byte : piece) symbols_.push_back(model_.byte_ids[static_cast<uint8_t>(byte)]);
  merge_symbols(ids);
}

// Hugging Face holds an unknown token back until a byte with a token or the end follows, so that fuse_unk can join it
// with the next; tokens of byte_fallback overtake one that is held.
void BpeMerger::encode_unspelled(std::string_view piece, std::vector<int32_t>& ids) {
  const Unspelled& unspelled = model_.unspelled;
  symbols_.clear();
  bool held = false;
  for (const char c : piece) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (const int32_t id = model_.byte_ids[byte]; id >= 0) {
      if (held) symbols_.push_back(unspelled.unknown);
      held = false;
      symbols_.push_back(id);
      continue;
    }
    const auto at = std::lower_bound(unspelled.bytes.begin(), unspelled.bytes.end(), byte);
    const std::vector<int32_t>& fallback = unspelled.fallback[static_cast<size_t>(at - unspelled.bytes.begin())];
    symbols_.insert(symbols_.end(), fallback.begin(), fallback.end());
    if (!fallback.empty() || unspelled.unknown < 0) continue;
    if (held && !unspelled.fuse) symbols_.push_back(unspelled.unknown);
    held = true;
  }
  if (held) symbols_.push_back(unspelled.unknown);
  if (!symbols_.empty()) merge_symbols(ids);
}

// Merges symbols_, which are not empty, and appends what is left.
void BpeMerger::merge_symbols(std::vector<int32_t>& ids) {
  if (symbols_.size() >= kNone) {
    fail(Exit::kInput, "a piece of text without a break is {} bytes, expected under 4 GiB", symbols_.size());
  }
  const uint32_t size = static_cast<uint32_t>(symbols_.size());
  next_.resize(size);
  previous_.resize(size);
  swept_rank_ = -1;
  for (uint32_t i = 0; i < size; ++i) {
    next_[i] = i + 1 < size ? i + 1 : kNone;
    previous_[i] = i - 1;  // kNone for 0
  }
  for (uint32_t i = 0; i + 1 < size; ++i) note_pair(i);

  std::vector<uint32_t> places;
  while (take_bucket(places)) {
    for (size_t i = 0; i < places.size() || !urgent_.empty();) {
      uint64_t pair = i < places.size() ? static_cast<uint64_t>(swept_rank_) << 32 | places[i] : UINT64_MAX;
      if (!urgent_.empty() && urgent_.front() < pair) {
        pair = urgent_.front();
        std::pop_heap(urgent_.begin(), urgent_.end(), std::greater<>());
        urgent_.pop_back();
      } else {
        ++i;
      }
      Merge merge;
      const uint32_t left = static_cast<uint32_t>(pair);
      if (merges_with(left, static_cast<uint32_t>(pair >> 32), merge)) merge_at(left, merge.id);
    }
  }
  for (uint32_t i = 0; i != kNone; i = next_[i]) ids.push_back(symbols_[i]);
}

}  // namespace mantissa::tokenizer
