// UTF-8 as RFC 3629 has it: no overlong form, no surrogate, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa {

// Bytes of `text` up to the first that belongs to no valid sequence; text.size() when all is valid.
size_t valid_utf8(std::string_view text);
// Appends the code point, which must be a scalar value.
void append_utf8(std::string& out, char32_t code);

}  // namespace mantissa
