// Properties of code points, looked up in two-stage tables. Letters, numbers, white space and word characters are those
// of Unicode 16.0, canonical normalisation that of Unicode 9.0, as in Hugging Face `tokenizers`
// (tools/make_unicode_tables.py).
#pragma once

#include <cstdint>

namespace mantissa::tokenizer {

// \p{L}, \p{N}, \s of the pre-tokenizer patterns; everything else.
enum CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

inline constexpr uint32_t kBlockSize = 128;  // code points a block of the tables

extern const uint8_t kCharClassBlocks[8704];
extern const uint64_t kCharClasses[1760];  // 4 bits a code point: CharClass, then 4 for \w
extern const uint8_t kNfcClassBlocks[8704];
extern const uint64_t kNfcClasses[1488];  // 8 bits a code point

// A canonical decomposition; second is 0 where it is one code point.
struct Decomposition {
  uint32_t code, first, second;
};
inline constexpr int kDecompositionCount = 2060, kCompositionCount = 940;
extern const Decomposition kDecompositions[kDecompositionCount];  // by code
extern const uint16_t kCompositions[kCompositionCount];           // places in kDecompositions, by (first, second)

inline uint32_t char_bits(uint32_t code) {
  const uint32_t word = kCharClassBlocks[code / kBlockSize] * (kBlockSize / 16) + code % kBlockSize / 16;
  return static_cast<uint32_t>(kCharClasses[word] >> (code % 16 * 4)) & 15u;
}
inline CharClass char_class(uint32_t code) { return static_cast<CharClass>(char_bits(code) & 3u); }
// \w: Alphabetic, marks, decimal digits, connector punctuation, join controls (UTS 18, Annex C).
inline bool is_word_char(uint32_t code) { return (char_bits(code) & 4u) != 0; }

// 0: a starter that text in NFC may hold anywhere; kNfcStarter: a starter that it may not; else the combining class.
inline constexpr uint8_t kNfcStarter = 255;
inline uint8_t nfc_class(uint32_t code) {
  const uint32_t word = kNfcClassBlocks[code / kBlockSize] * (kBlockSize / 8) + code % kBlockSize / 8;
  return static_cast<uint8_t>(kNfcClasses[word] >> (code % 8 * 8));
}

}  // namespace mantissa::tokenizer
