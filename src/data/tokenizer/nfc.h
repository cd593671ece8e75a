// Canonical composition, NFC (Unicode Standard Annex 15), as Unicode 9.0 defines it: code points assigned later stay as
// they are, as in Hugging Face `tokenizers`.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::tokenizer {

// Whether well-formed text is in NFC by the quick check; false may also mean "perhaps".
bool surely_nfc(std::string_view text);

// Replaces `out` by the NFC of well-formed text.
void to_nfc(std::string_view text, std::string& out);

}  // namespace mantissa::tokenizer
