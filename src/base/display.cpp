#include "base/display.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace mantissa {
namespace {

struct CodeRange {
  uint32_t first, last;
};

// Cc, and of Cf what hides or reorders others (Unicode 15; UAX 9, section 2). The joiners U+200C and U+200D stay:
// scripts and emoji are spelt with them.
constexpr CodeRange kNotShown[] = {
    {0x0000, 0x001F}, {0x007F, 0x009F}, {0x061C, 0x061C}, {0x200B, 0x200B}, {0x200E, 0x200F},
    {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F},
};

uint32_t code_point(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  uint32_t code = sequence.size() == 1 ? lead : lead & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  return code;
}

}  // namespace

bool is_shown(uint32_t code) {
  return std::none_of(std::begin(kNotShown), std::end(kNotShown),
                      [code](CodeRange range) { return code >= range.first && code <= range.last; });
}

size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t k) { return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : 0u; };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool bounds = !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second > 0x9F);
    return bounds && tail(1) && tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool bounds = !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second > 0x8F);
    return bounds && tail(1) && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

std::string displayed(std::string_view text, Breaks breaks) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const std::string_view sequence = text.substr(at, std::max<size_t>(length, 1));
    at += sequence.size();
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(sequence[0]));
    } else if (sequence == "\n" || sequence == "\t") {
      breaks == Breaks::kKeep ? out += sequence : out += sequence == "\n" ? "\\n" : "\\t";
    } else if (const uint32_t code = code_point(sequence); is_shown(code)) {
      out += sequence;
    } else {
      out += length == 1 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{{{:x}}}", code);
    }
  }
  return out;
}

}  // namespace mantissa
