// Helpers of the tests of base and data.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace mantissa::testing {

// A folder of its own that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mantissa-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The message of the Error that `body` throws; anything else fails the test.
template <class Body>
std::string error_of(Exit code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error, expected exit code " << static_cast<int>(code);
  return "";
}

// `good` with one to four changes drawn from `seed`: a byte set, a piece cut out, doubled or moved, a hostile word put
// in.
inline std::string mutated(std::string good, uint32_t seed) {
  static const char* kWords[] = {"{",
                                 "}",
                                 "[",
                                 "]",
                                 "\"",
                                 ":",
                                 ",",
                                 "-1",
                                 "0",
                                 "18446744073709551615",
                                 "1e999",
                                 "null",
                                 "\\u0000",
                                 "../",
                                 "[[[[[[[[",
                                 "\"a\":",
                                 "9223372036854775807",
                                 "4294967296",
                                 "true"};
  uint64_t state = seed * 2654435761u + 12345;
  const auto draw = [&state](size_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n == 0 ? size_t{0} : static_cast<size_t>((state >> 33) % n);
  };
  const size_t changes = 1 + draw(4);
  for (size_t i = 0; i < changes; ++i) {
    const size_t at = draw(good.size() + 1), length = 1 + draw(12);
    switch (draw(5)) {
      case 0:
        if (at < good.size()) good[at] = static_cast<char>(draw(256));
        break;
      case 1:
        good.erase(std::min(at, good.size()), length);
        break;
      case 2:
        good.insert(at, good.substr(draw(good.size() + 1), length));
        break;
      case 3:
        good.insert(at, kWords[draw(std::size(kWords))]);
        break;
      default:
        good.replace(at, length, kWords[draw(std::size(kWords))]);
        break;
    }
  }
  return good;
}

}  // namespace mantissa::testing
