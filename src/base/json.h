// JSON from outside: nesting at most 64 deep, no key twice in an object, nothing after the value, valid UTF-8.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mantissa {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 64;

// Fails with `code` and a message that starts with `name`.
Json parse_json(std::string_view text, const std::string& name, Exit code = Exit::kInput);
Json read_json(const std::string& path, uint64_t max_bytes = uint64_t{64} << 20);

// "not JSON at byte 17: syntax error ...": what nlohmann's parser says of a place, fit for one line of a message.
std::string json_error_text(size_t position, std::string what);

// The member `key` of `object`, which must be there; `name` is the file for the message.
const Json& member(const Json& object, const std::string& key, const std::string& name);

}  // namespace mantissa
