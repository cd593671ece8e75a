#include "base/utf8.h"

#include <cstdint>
#include <cstring>

namespace mantissa {
namespace {

constexpr uint64_t kHighBits = 0x8080808080808080;

bool continues(uint8_t byte) { return (byte & 0xc0) == 0x80; }

// Length of the sequence that begins at p, 0 when it is none.
size_t sequence(const uint8_t* p, size_t left) {
  const uint8_t first = p[0];
  if (first < 0xc2) return first < 0x80 ? 1 : 0;
  if (first < 0xe0) return left >= 2 && continues(p[1]) ? 2 : 0;
  if (first < 0xf0) {
    if (left < 3 || !continues(p[1]) || !continues(p[2])) return 0;
    if (first == 0xe0 && p[1] < 0xa0) return 0;   // overlong
    if (first == 0xed && p[1] >= 0xa0) return 0;  // surrogate
    return 3;
  }
  if (first > 0xf4 || left < 4 || !continues(p[1]) || !continues(p[2]) || !continues(p[3])) return 0;
  if (first == 0xf0 && p[1] < 0x90) return 0;   // overlong
  if (first == 0xf4 && p[1] >= 0x90) return 0;  // above U+10FFFF
  return 4;
}

}  // namespace

size_t valid_utf8(std::string_view text) {
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  const size_t size = text.size();
  size_t i = 0;
  while (i < size) {
    if (data[i] < 0x80) {
      uint64_t a = 0, b = 0;
      while (i + 16 <= size) {
        std::memcpy(&a, data + i, 8);
        std::memcpy(&b, data + i + 8, 8);
        if (((a | b) & kHighBits) != 0) break;
        i += 16;
      }
      while (i < size && data[i] < 0x80) ++i;
      continue;
    }
    const size_t length = sequence(data + i, size - i);
    if (length == 0) return i;
    i += length;
  }
  return size;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  }
}

}  // namespace mantissa
