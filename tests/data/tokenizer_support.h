// Tokenizers of the tests: the committed fixtures, changed copies of them, the real ones where they are.
#pragma once

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

namespace mantissa::testing {

inline std::string tokenizer_fixture(const std::string& name) {
  return std::string(MANTISSA_SOURCE_DIR) + "/tests/fixtures/tokenizers/" + name;
}

inline Json fixture_json(const std::string& name) { return read_json(tokenizer_fixture(name) + "/tokenizer.json"); }

inline Tokenizer tokenizer_of(const Json& json, const std::string& name = "made-up.json") {
  return Tokenizer::from_json(json.dump(), name);
}

inline std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text,
                                    SpecialTokens special = SpecialTokens::kLeaveOut) {
  std::vector<int32_t> ids;
  Tokenizer::Encoder(tokenizer).encode(text, special, ids);
  return ids;
}

// The folder that MANTISSA_TEST_DATA names, or "".
inline std::string test_data() {
  const char* folder = std::getenv("MANTISSA_TEST_DATA");
  return folder == nullptr ? "" : folder;
}

}  // namespace mantissa::testing
