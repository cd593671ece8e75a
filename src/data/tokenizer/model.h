// A byte-level BPE tokenizer as encoding needs it, built from tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/merges.h"
#include "data/tokenizer/pretoken.h"
#include "data/tokenizer/vocab.h"

namespace mantissa::tokenizer {

// What the file's pipeline asks for.
struct Steps {
  bool nfc = false;               // normalizer
  Pattern pattern{};              // pre_tokenizer
  bool add_prefix_space = false;  // a piece that does not begin with a space gets one
  std::vector<int32_t> before{};  // post_processor: ids around the text
  std::vector<int32_t> after{};
};

// What stands for bytes that the vocabulary has no token for.
struct Unspelled {
  std::vector<uint8_t> bytes;                  // empty in most files
  std::vector<std::vector<int32_t>> fallback;  // of each of `bytes`; byte_fallback: tokens "<0xC4>"; empty: none
  int32_t unknown = -1;                        // unk_token; -1: such a byte is left out
  bool fuse = false;                           // fuse_unk: neighbours are one unknown token
};

struct Model {
  Vocab vocab;  // added tokens too
  Merges merges;
  bool ignore_merges = false;           // a piece that is a token is that token
  std::array<int32_t, 256> byte_ids{};  // -1: one of unspelled.bytes
  Unspelled unspelled;
  std::vector<Merge> byte_pairs;  // merge of byte l and byte r at l << 8 | r: half of all questions, in few cache lines
  std::vector<AddedToken> added;
  std::unordered_map<std::string, size_t> added_places;  // in `added`, by content
  std::unordered_set<int32_t> special;                   // ids of special added tokens
  std::unordered_set<int32_t> left_out;                  // ids that decoding without special tokens leaves out
  AddedTokenMatcher raw_tokens;                          // looked for before normalisation
  AddedTokenMatcher normalized_tokens;                   // looked for behind it
  Steps steps;

  const AddedToken* find_added(std::string_view content) const;  // nullptr when there is none
};

// Exit::kInput, beginning with `name`: see read_tokenizer_file(); a part of the pipeline that is not known; a token or
// id twice; a byte without a token and an unk_token that is none; a merge of or to a token that is not there; an added
// token whose id is not the one that Hugging Face gives it (its id in the vocabulary, else the next free one in the
// order of the list).
Model build_model(std::string_view json, const std::string& name);

}  // namespace mantissa::tokenizer
