#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;

// The parser's own names for what is wrong are not shown.
TEST(Json, MessagesSayThePlaceAndWhatIsWrong) {
  const auto says = [](const char* text) { return error_of(Exit::kInput, [&] { parse_json(text, "x"); }); };
  EXPECT_EQ(says("[1, 1e999]"), "x: not JSON at byte 9: number overflow parsing '1e999'");
  for (const char* text : {"", "[", "[1 2]", "{\"a\" 1}", "\"\\x\"", "\xff", "[1]]"}) {
    const std::string message = says(text);
    EXPECT_TRUE(message.starts_with("x: not JSON at byte ")) << message;
    EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
    EXPECT_EQ(message.find("parse error at line"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace mantissa
