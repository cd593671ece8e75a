#include "report/page_policy.h"

#include <charconv>
#include <cstdint>

#include "base/sha256.h"

namespace mantissa::report {
namespace {

std::string sources(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += " " + policy_source(text);
  return out.empty() ? " 'none'" : out;
}

}  // namespace

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string policy_source(std::string_view text) {
  const std::string hex = sha256(text);
  std::string digest;
  for (size_t i = 0; i < hex.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    digest += static_cast<char>(byte);
  }
  return "'sha256-" + base64(digest) + "'";
}

std::string page_policy(const std::vector<std::string>& scripts, const std::vector<std::string>& styles) {
  return "default-src 'none'; script-src" + sources(scripts) + "; style-src" + sources(styles) +
         "; img-src data:; base-uri 'none'; form-action 'none'";
}

}  // namespace mantissa::report
