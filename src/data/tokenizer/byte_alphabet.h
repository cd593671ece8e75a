// The byte-level spelling: every byte is written as one printable character, so that a vocabulary is valid JSON text.
// Bytes 33..126, 161..172 and 174..255 are the characters of the same number, the other 68 in order U+0100, U+0101, ...
// Source: bytes_to_unicode of https://github.com/openai/gpt-2/blob/master/src/encoder.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

uint32_t char_of_byte(uint8_t byte);
int byte_of_char(uint32_t code);  // -1 when the character stands for none

std::string spell(std::string_view bytes);
// Appends the bytes that `spelling` (well-formed UTF-8) stands for; false, and `bytes` as it was, when one of its
// characters stands for none.
bool append_spelled(std::string& bytes, std::string_view spelling);

}  // namespace mantissa::tokenizer
