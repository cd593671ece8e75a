// A JSON object with its place in the file: typed access whose errors name the place, the key, found and expected.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "report/run_reader.h"

namespace mantissa::report {

class JsonFields {
 public:
  static constexpr size_t kMostUnknown = 20;

  // `where` is "file" or "file:line".
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail(Exit::kInput, "{}: {} found, expected an object", where_, object_.type_name());
  }

  bool has(std::string_view key) const { return object_.contains(key); }

  // Empty where the key is absent or null.
  Number number(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return {};
    if (!it->is_number()) wrong(key, *it, "a number");
    return it->get<double>();
  }
  double required(std::string_view key) const {
    const Number value = number(key);
    if (!value) fail(Exit::kInput, "{}: {}: missing, expected a number", where_, key);
    return *value;
  }
  int64_t integer(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) fail(Exit::kInput, "{}: {}: missing, expected an integer", where_, key);
    if (!it->is_number_integer() || (it->is_number_unsigned() && it->get<uint64_t>() > INT64_MAX))
      wrong(key, *it, "an integer");
    return it->get<int64_t>();
  }
  // "" where the key is absent or null.
  std::string text(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return {};
    if (!it->is_string()) wrong(key, *it, "a string");
    return it->get<std::string>();
  }
  std::string required_text(std::string_view key) const {
    std::string value = text(key);
    if (value.empty()) fail(Exit::kInput, "{}: {}: missing, expected a string", where_, key);
    return value;
  }
  // Fails where the key is absent or holds something else; null is a missing figure.
  void expect_number_or_null(std::string_view key) const {
    if (!has(key)) fail(Exit::kInput, "{}: {}: missing, expected a number or null", where_, key);
    number(key);
  }
  const Json& object(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) fail(Exit::kInput, "{}: {}: missing, expected an object", where_, key);
    if (!it->is_object()) wrong(key, *it, "an object");
    return *it;
  }
  const std::string& where() const { return where_; }
  Json value(std::string_view key) const { return has(key) ? object_[std::string(key)] : Json(); }
  const Json& list(std::string_view key) const {
    const auto it = object_.find(key);
    if (it == object_.end()) fail(Exit::kInput, "{}: {}: missing, expected a list", where_, key);
    if (!it->is_array()) wrong(key, *it, "a list");
    return *it;
  }

  // Appends to `unknown`, once each and up to kMostUnknown, the keys that are not in `known`.
  void collect_unknown(std::initializer_list<std::string_view> known, std::vector<std::string>& unknown) const {
    for (const auto& [key, value] : object_.items()) {
      if (unknown.size() >= kMostUnknown || std::find(known.begin(), known.end(), key) != known.end()) continue;
      if (std::find(unknown.begin(), unknown.end(), key) == unknown.end()) unknown.push_back(key);
    }
  }

 private:
  [[noreturn]] void wrong(std::string_view key, const Json& found, std::string_view expected) const {
    fail(Exit::kInput, "{}: {}: {} found, expected {}", where_, key, printable(found.dump(), 60), expected);
  }

  const Json& object_;
  std::string where_;
};

}  // namespace mantissa::report
