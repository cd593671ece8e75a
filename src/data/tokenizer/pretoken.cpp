#include "data/tokenizer/pretoken.h"

#include <array>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (uint32_t c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    classes[c] = letter                                 ? kLetter
                 : c >= '0' && c <= '9'                 ? kNumber
                 : c == ' ' || (c >= '\t' && c <= '\r') ? kSpace
                                                        : kOther;
  }
  return classes;
}

constexpr std::array<CharClass, 128> kAsciiClasses = make_ascii_classes();

struct Char {
  CharClass kind;
  uint32_t size;  // bytes
};

inline Char char_at(const char* p) {
  const uint8_t byte = static_cast<uint8_t>(*p);
  if (byte < 0x80) [[likely]]
    return {kAsciiClasses[byte], 1};
  const CodePoint point = code_point_at(p);
  return {char_class(point.code), point.size};
}

inline bool is_newline(char c) { return c == '\r' || c == '\n'; }

// The end of the run of characters of one kind that begins at p.
template <CharClass kKind>
inline const char* run_end(const char* p, const char* end) {
  while (p < end) {
    const Char c = char_at(p);
    if (c.kind != kKind) break;
    p += c.size;
  }
  return p;
}

inline const char* newlines_end(const char* p, const char* end) {
  while (p < end && is_newline(*p)) ++p;
  return p;
}

// (\s*[\r\n]+|)\s+(?!\S)|\s+ at white space: to behind the run's last line break where `by_line` and there is one, else
// all of a run that ends the text, else all but the last character, else that character.
inline const char* space_end(const char* p, const char* end, bool by_line) {
  const char *at = p, *last = p, *line_end = nullptr;
  while (at < end) {
    const Char c = char_at(at);
    if (c.kind != kSpace) break;
    last = at;
    if (is_newline(*at)) line_end = at + 1;
    at += c.size;
  }
  if (by_line && line_end != nullptr) return line_end;
  return at < end && last > p ? last : at;
}

// The length of 's 't 're 've 'm 'll 'd at an apostrophe, 0 when it begins none. U+017F folds to s.
template <bool kAnyCase>
inline uint32_t contraction(const char* p, const char* end) {
  const auto letter = [&](int i) { return p + i < end ? (kAnyCase ? p[i] | 0x20 : p[i]) : 0; };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    default:
      return kAnyCase && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF' ? 3 : 0;
  }
}

const char* gpt2_end(const char* p, const char* end) {
  if (*p == '\'') {
    if (const uint32_t size = contraction<false>(p, end)) return p + size;
  }
  const char* const start = *p == ' ' ? p + 1 : p;
  if (start == end) return end;
  const Char c = char_at(start);
  switch (c.kind) {
    case kLetter:
      return run_end<kLetter>(start + c.size, end);
    case kNumber:
      return run_end<kNumber>(start + c.size, end);
    case kOther:
      return run_end<kOther>(start + c.size, end);
    default:
      return space_end(p, end, false);
  }
}

template <int kMaxDigits>
const char* llama_end(const char* p, const char* end) {
  if (*p == '\'') {
    if (const uint32_t size = contraction<true>(p, end)) return p + size;
  }
  const Char c = char_at(p);
  const char* const second = p + c.size;
  if (c.kind == kLetter) return run_end<kLetter>(second, end);
  if (c.kind == kNumber) {
    const char* at = second;
    for (int digits = 1; digits < kMaxDigits && at < end; ++digits) {
      const Char next = char_at(at);
      if (next.kind != kNumber) break;
      at += next.size;
    }
    return at;
  }
  if (second < end && !is_newline(*p)) {
    const Char next = char_at(second);
    if (next.kind == kLetter) return run_end<kLetter>(second + next.size, end);
    if (next.kind == kOther && *p == ' ') return newlines_end(run_end<kOther>(second + next.size, end), end);
  }
  if (c.kind == kOther) return newlines_end(run_end<kOther>(second, end), end);
  return space_end(p, end, true);
}

}  // namespace

std::string_view pattern_text(Pattern pattern) {
  switch (pattern) {
    case Pattern::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case Pattern::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case Pattern::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
             R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return {};
}

template <Pattern kPattern>
const char* pretoken_end(const char* p, const char* end) {
  if constexpr (kPattern == Pattern::kGpt2) {
    return gpt2_end(p, end);
  } else {
    return llama_end < kPattern == Pattern::kLlama3 ? 3 : 1 > (p, end);
  }
}

template const char* pretoken_end<Pattern::kGpt2>(const char*, const char*);
template const char* pretoken_end<Pattern::kLlama3>(const char*, const char*);
template const char* pretoken_end<Pattern::kQwen2>(const char*, const char*);

}  // namespace mantissa::tokenizer
