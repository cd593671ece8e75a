// Cuts text into the pieces that BPE works on, as the regular expressions of the known tokenizers do, in linear time.
#pragma once

#include <cstdint>
#include <string_view>

namespace mantissa::tokenizer {

enum class Pattern : uint8_t {
  kGpt2,    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kLlama3,  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|...
  kQwen2,   // the same with \p{N} for \p{N}{1,3}
};

// The regular expression of a pattern, as tokenizer.json writes it.
std::string_view pattern_text(Pattern pattern);

// The end of the piece that begins at p < end; the text is well-formed UTF-8.
template <Pattern kPattern>
const char* pretoken_end(const char* p, const char* end);

extern template const char* pretoken_end<Pattern::kGpt2>(const char*, const char*);
extern template const char* pretoken_end<Pattern::kLlama3>(const char*, const char*);
extern template const char* pretoken_end<Pattern::kQwen2>(const char*, const char*);

}  // namespace mantissa::tokenizer
