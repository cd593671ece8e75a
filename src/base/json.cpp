#include "base/json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace mantissa {
namespace {

// Builds the value from the parser's events, so that depth and keys are checked before anything deeper is kept.
class Builder {
 public:
  explicit Builder(Json& root) : root_(root) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return refuse("binary value"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto [at, fresh] = open_.back()->get_ref<Json::object_t&>().emplace(name, nullptr);
    if (!fresh) return refuse("key \"" + printable(name) + "\" stands twice in one object");
    slot_ = &at->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    return refuse(json_error_text(position, error.what()));
  }

  const std::string& error() const { return error_; }

 private:
  bool refuse(std::string message) {
    error_ = std::move(message);
    return false;
  }

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  template <class T>
  bool add(T&& value) {
    place(Json(std::forward<T>(value)));
    return true;
  }

  bool open(Json container) {
    if (open_.size() >= static_cast<size_t>(kMaxJsonDepth))
      return refuse(fmt::format("nested more than {} deep", kMaxJsonDepth));
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;
  std::string error_;
};

}  // namespace

std::string json_error_text(size_t position, std::string what) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." keeps its last part,
  // "[json.exception.out_of_range.406] number overflow ..." all but its name.
  const size_t name = what.find("] ");
  if (what.starts_with("[json.exception") && name != std::string::npos) what.erase(0, name + 2);
  const size_t at = what.find("column");
  const size_t colon = what.find(": ", at == std::string::npos ? 0 : at);
  if (colon != std::string::npos) what = what.substr(colon + 2);
  return fmt::format("not JSON at byte {}: {}", position, printable(what, 200));
}

Json parse_json(std::string_view text, const std::string& name, Exit code) {
  Json root;
  Builder builder(root);
  if (!Json::sax_parse(text, &builder)) fail(code, "{}: {}", name, builder.error());
  return root;
}

Json read_json(const std::string& path, uint64_t max_bytes) { return parse_json(read_text(path, max_bytes), path); }

const Json& member(const Json& object, const std::string& key, const std::string& name) {
  if (!object.is_object())
    fail(Exit::kInput, "{}: is {}, expected an object with \"{}\"", name, object.type_name(), key);
  const auto at = object.find(key);
  if (at == object.end()) fail(Exit::kInput, "{}: no \"{}\"", name, key);
  return *at;
}

}  // namespace mantissa
