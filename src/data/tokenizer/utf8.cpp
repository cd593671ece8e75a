#include "data/tokenizer/utf8.h"

#include <cstring>

namespace mantissa::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  uint32_t size;  // bytes that belong together
  bool well_formed;
};

// The sequence at p: a code point, or the longest beginning of one that the bytes allow (at least one byte).
Sequence sequence_at(const uint8_t* p, const uint8_t* end) {
  const uint8_t lead = *p;
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (uint32_t i = 1; i < size; ++i) {
    if (p + i == end || p[i] < (i == 1 ? low : 0x80) || p[i] > (i == 1 ? high : 0xBF)) return {i, false};
  }
  return {size, true};
}

}  // namespace

size_t find_ill_formed(std::string_view text) {
  const uint8_t* const begin = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = begin + text.size();
  const uint8_t* p = begin;
  while (p < end) {
    if (end - p >= 16) {
      uint64_t words[2];
      std::memcpy(words, p, 16);
      if (((words[0] | words[1]) & 0x8080808080808080u) == 0) {
        p += 16;
        continue;
      }
    }
    const Sequence sequence = sequence_at(p, end);
    if (!sequence.well_formed) return static_cast<size_t>(p - begin);
    p += sequence.size;
  }
  return text.size();
}

std::string replace_ill_formed(std::string text) {
  const size_t first = find_ill_formed(text);
  if (first == text.size()) return text;
  std::string mended = text.substr(0, first);
  const uint8_t* p = reinterpret_cast<const uint8_t*>(text.data()) + first;
  const uint8_t* const end = p + (text.size() - first);
  while (p < end) {
    const Sequence sequence = sequence_at(p, end);
    if (sequence.well_formed) {
      mended.append(reinterpret_cast<const char*>(p), sequence.size);
    } else {
      mended += kReplacement;
    }
    p += sequence.size;
  }
  return mended;
}

void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

}  // namespace mantissa::tokenizer
