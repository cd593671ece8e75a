// Byte pair encoding: starting from bytes, the pair of lowest rank merges, the leftmost of equal ones, until none does.
// Sennrich et al., "Neural machine translation of rare words with subword units", ACL 2016.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/model.h"

namespace mantissa::tokenizer {

// Scratch for long pieces.
class BpeMerger {
 public:
  explicit BpeMerger(const Model& model) : model_(model) {}

  // Appends the tokens of one piece, which is not empty; none where all its bytes are left out. A piece of n bytes
  // takes O(n log n) steps.
  void encode(std::string_view piece, std::vector<int32_t>& ids);

 private:
  static constexpr size_t kShort = 64;  // bytes; up to here a plain search for the lowest rank is fastest

  void encode_short(std::string_view piece, std::vector<int32_t>& ids);
  void encode_long(std::string_view piece, std::vector<int32_t>& ids);
  void encode_unspelled(std::string_view piece, std::vector<int32_t>& ids);
  void merge_symbols(std::vector<int32_t>& ids);

  void note_pair(uint32_t left);
  void merge_at(uint32_t left, int32_t id);
  bool take_bucket(std::vector<uint32_t>& places);
  bool merges_with(uint32_t left, uint32_t rank, Merge& merge) const;

  const Model& model_;
  // Long pieces: a list of symbols; for every rank that occurs the places of its pairs, swept from left to right.
  std::vector<int32_t> symbols_;  // by place, -1: merged into an earlier one
  std::vector<uint32_t> next_, previous_;
  std::vector<uint32_t> bucket_of_rank_;
  std::vector<std::vector<uint32_t>> buckets_;
  std::vector<uint32_t> free_buckets_;
  std::vector<uint32_t> ranks_;  // heap of the ranks that have a bucket
  int64_t swept_rank_ = -1;
  std::vector<uint64_t>
      urgent_;  // heap of rank << 32 | place: pairs of the swept rank or a lower one that a merge made
};

}  // namespace mantissa::tokenizer
