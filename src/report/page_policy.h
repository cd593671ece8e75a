// The page's Content-Security-Policy (W3C CSP level 3): its own scripts and styles run, named by their hashes; nothing
// is fetched, nothing of the run directories can become code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::report {

// RFC 4648, section 4, with padding.
std::string base64(std::string_view bytes);

// "'sha256-…'" of the text between <script> and </script>, or <style> and </style>.
std::string policy_source(std::string_view text);

// The value of the meta element, for exactly these inline texts.
std::string page_policy(const std::vector<std::string>& scripts, const std::vector<std::string>& styles);

}  // namespace mantissa::report
