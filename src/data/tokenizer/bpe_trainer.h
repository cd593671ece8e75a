// Byte-level BPE learned from counted words. Algorithm: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare
// Words with Subword Units" (2016), over bytes; ids, merges and ties are those of Hugging Face's BpeTrainer with
// initial_alphabet = ByteLevel.alphabet().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mantissa::tokenizer {

struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// How often each word (piece of the pre-tokenizer, as bytes) stands in the documents.
using WordCounts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

struct BpeOptions {
  int64_t vocab_size = 0;            // tokens in all, special ones included
  std::vector<std::string> special;  // take the first ids
};

struct BpeModel {
  std::vector<std::string> tokens;  // by id: special tokens as they are, others spelled (byte_alphabet.h)
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids, by rank
  int64_t corpus_tokens = 0;                        // of the counted words under these merges
  int64_t special = 0;                              // tokens of ids 0 to special - 1
};

// Special tokens, the 256 bytes by the code point of their spelling, then a token for each merge: the pair counted most
// often, of equals the one with the smaller ids. Fewer than vocab_size tokens when no pair is left. Exit::kUsage when
// special tokens and bytes alone are more, or a special token is empty or given twice. `progress` hears the number of
// tokens now and then and may throw.
BpeModel train_bpe(const WordCounts& words, const BpeOptions& options,
                   const std::function<void(int64_t tokens)>& progress = {});

}  // namespace mantissa::tokenizer
