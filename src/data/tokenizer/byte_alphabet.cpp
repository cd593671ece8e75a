#include "data/tokenizer/byte_alphabet.h"

#include <array>

#include "data/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

constexpr uint32_t kFirstStandIn = 256, kCharLimit = 324;  // 68 stand-ins

struct Alphabet {
  std::array<uint16_t, 256> chars{};
  std::array<int16_t, kCharLimit> bytes{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.bytes) byte = -1;
  uint32_t stand_in = kFirstStandIn;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const uint32_t code = printable ? byte : stand_in++;
    alphabet.chars[byte] = static_cast<uint16_t>(code);
    alphabet.bytes[code] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

uint32_t char_of_byte(uint8_t byte) { return kAlphabet.chars[byte]; }
int byte_of_char(uint32_t code) { return code < kCharLimit ? kAlphabet.bytes[code] : -1; }

std::string spell(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(spelling, char_of_byte(static_cast<uint8_t>(byte)));
  return spelling;
}

bool append_spelled(std::string& bytes, std::string_view spelling) {
  const size_t before = bytes.size();
  for (const char *p = spelling.data(), *end = p + spelling.size(); p < end;) {
    const CodePoint point = code_point_at(p);
    const int byte = byte_of_char(point.code);
    if (byte < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(byte);
    p += point.size;
  }
  return true;
}

}  // namespace mantissa::tokenizer
