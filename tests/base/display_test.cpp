#include "base/display.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace mantissa {
namespace {

TEST(Display, KeepsTextOfAnyScript) {
  for (const char* text : {"", "a b~", "Δ – … ±", "שלום عربي 日本語 한국어", "👩‍💻", "می‌خواهم"})
    EXPECT_EQ(displayed(text), text);
}

TEST(Display, EscapesWhatATerminalOrAPageObeys) {
  EXPECT_EQ(displayed("\x1b[2Jx"), "\\x1b[2Jx");
  EXPECT_EQ(displayed(std::string_view("a\0b\x7f", 4)), "a\\x00b\\x7f");
  EXPECT_EQ(displayed("\r\n\t"), "\\x0d\\n\\t");
  EXPECT_EQ(displayed("\r\n\t", Breaks::kKeep), "\\x0d\n\t");
  EXPECT_EQ(displayed("\xc2\x9b"
                      "31m"),
            "\\u{9b}31m");  // CSI of C1
  EXPECT_EQ(displayed("a\xe2\x80\xae"
                      "b\xe2\x81\xa9"),
            "a\\u{202e}b\\u{2069}");  // right-to-left override, isolate
  EXPECT_EQ(displayed("\xd8\x9c\xe2\x80\x8f\xef\xbb\xbf"), "\\u{61c}\\u{200f}\\u{feff}");
  EXPECT_EQ(displayed("\xe2\x80\xa8\xf3\xa0\x81\x81"), "\\u{2028}\\u{e0041}");  // line separator, tag letter
}

TEST(Display, EscapesEveryControlAndDirectionMark) {
  const auto utf8 = [](uint32_t code) {
    std::string out;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    if (code < 0x800) return std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    return std::string{static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                       static_cast<char>(0x80 | (code & 0x3F))};
  };
  const auto obeyed = [](uint32_t code) {
    return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x61C || code == 0x200B || code == 0x200E ||
           code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) ||
           code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB);
  };
  for (uint32_t code = 0; code < 0x10000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;  // surrogates are no text
    EXPECT_EQ(displayed(utf8(code)) != utf8(code), obeyed(code)) << code;
  }
}

TEST(Display, BytesThatAreNotUtf8) {
  EXPECT_EQ(displayed("a\xff"
                      "b\xc0\x80"),
            "a\\xffb\\xc0\\x80");
  EXPECT_EQ(displayed("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(displayed("\xe2\x82"), "\\xe2\\x82");           // cut
  EXPECT_EQ(displayed("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

// Every refusal of the JSON parser is in the project's words.
TEST(Json, RefusalsShowNoLibraryText) {
  for (const char* bad :
       {"{\"a\":1e999}", "-1e999", "[1,", "\"\xff\"", "{\"a\":1}x", "", "nul", "\"\\ud800\"", "\x01"}) {
    try {
      parse_json(bad, "x.json");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Exit::kInput);
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("parse_error"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace mantissa
