// Text from outside as a reader may see it: what a terminal or a page would obey instead of showing (control
// characters, marks that turn the direction of writing, invisible characters, bytes that are not UTF-8) stands as an
// escape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mantissa {

// Bytes of the UTF-8 sequence at text[at], or 0 where it is not well-formed (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text, size_t at);

// False for what displayed() escapes; '\n' and '\t' are among those.
bool is_shown(uint32_t code_point);

enum class Breaks { kEscape, kKeep };  // '\n' and '\t': part of a name, or of a text with lines

// \x1b for a byte, \u{202e} for a code point, \n and \t; everything else, letters of any script included, stays.
std::string displayed(std::string_view text, Breaks breaks = Breaks::kEscape);

}  // namespace mantissa
