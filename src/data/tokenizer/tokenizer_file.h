// tokenizer.json as it stands in the file: the vocabulary and the merges flat, everything else as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mantissa::tokenizer {

inline constexpr uint64_t kMaxFileBytes = 100'000'000;

struct TokenizerFile {
  struct VocabEntry {
    uint32_t offset, size;  // of the spelling in `text`
    int32_t id;
  };
  struct MergeEntry {
    uint32_t offset, left, right;  // sizes of the two spellings, which stand end to end in `text`
  };

  Json rest;  // model.vocab is {} and model.merges is [] here
  std::string text;
  std::vector<VocabEntry> vocab;
  std::vector<MergeEntry> merges;

  std::string_view spelling(const VocabEntry& entry) const {
    return std::string_view(text).substr(entry.offset, entry.size);
  }
  std::string_view left(const MergeEntry& entry) const {
    return std::string_view(text).substr(entry.offset, entry.left);
  }
  std::string_view right(const MergeEntry& entry) const {
    return std::string_view(text).substr(entry.offset + entry.left, entry.right);
  }
};

// Exit::kInput, beginning with `name`: not JSON, more than kMaxFileBytes, nested too deep, a key twice in one object,
// an id that is no number from 0 to kMaxTokenId, a merge that is not two strings. Takes one pass.
TokenizerFile read_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace mantissa::tokenizer
