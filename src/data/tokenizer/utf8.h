// UTF-8 (RFC 3629): checking, stepping through well-formed text, mending ill-formed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

// Where the first ill-formed sequence begins; text.size() when there is none.
size_t find_ill_formed(std::string_view text);

// Every maximal ill-formed part becomes one U+FFFD (Unicode 16.0, section 3.9.6; Rust's String::from_utf8_lossy).
std::string replace_ill_formed(std::string text);

void append_utf8(std::string& text, uint32_t code);

struct CodePoint {
  uint32_t code;
  uint32_t size;  // bytes
};

// The code point at `p` of well-formed text.
inline CodePoint code_point_at(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The code point that ends at `p` of well-formed text, p > its beginning.
inline CodePoint code_point_before(const char* p) {
  const char* start = p - 1;
  while ((static_cast<uint8_t>(*start) & 0xC0) == 0x80) --start;
  return code_point_at(start);
}

}  // namespace mantissa::tokenizer
