#include "model/hf/index.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace mantissa::hf {
namespace {

// The parser's events: weight_map is kept, metadata.total_size too, what else stands there is passed over.
class Events {
 public:
  Events(Index& index, const std::string& name) : index_(index), name_(name) {}

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("true or false"); }
  bool number_integer(int64_t) { return scalar("a number"); }
  bool number_float(double, const std::string&) { return scalar("a number"); }
  bool binary(Json::binary_t&) { return scalar("binary"); }
  bool number_unsigned(uint64_t value) {
    if (depth_ == 2 && in_metadata_ && key_ == "total_size") index_.total_size = value;
    return scalar("a number");
  }
  bool string(std::string& value) {
    if (!in_map()) return scalar("a text");
    check_name(value);
    slot_->second = std::move(value);
    return true;
  }

  bool start_object(size_t) {
    expect_container("an object", depth_ == 0 || (depth_ == 1 && key_ == kMap));
    if (depth_ == 1) {
      in_map_ = key_ == kMap;
      in_metadata_ = key_ == "metadata";
      if (in_map_ && std::exchange(has_map_, true)) fail(Exit::kInput, "{}: {} stands twice", name_, kMap);
    }
    return deeper();
  }
  bool start_array(size_t) {
    expect_container("a list", false);
    return deeper();
  }
  bool end_object() { return shallower(); }
  bool end_array() { return shallower(); }

  bool key(std::string& name) {
    if (in_map()) {
      const auto [at, fresh] = index_.weight_map.emplace(std::move(name), "");
      if (!fresh) fail(Exit::kInput, "{}: tensor \"{}\" stands twice", name_, printable(at->first));
      slot_ = &*at;
    } else {
      key_ = std::move(name);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    fail(Exit::kInput, "{}: {}", name_, json_error_text(position, error.what()));
  }

  bool has_map() const { return has_map_; }

 private:
  static constexpr std::string_view kMap = "weight_map";

  bool in_map() const { return depth_ == 2 && in_map_; }

  bool scalar(const char* type) {
    expect_container(type, false);
    return true;
  }
  // A value begins; `fits`: where an object is expected it is one.
  void expect_container(const char* type, bool fits) {
    if (depth_ == 0 && !fits) fail(Exit::kInput, "{}: is {}, expected an object with \"{}\"", name_, type, kMap);
    if (depth_ == 1 && key_ == kMap && !fits) fail(Exit::kInput, "{}: {} is {}, expected an object", name_, kMap, type);
    if (in_map())
      fail(Exit::kInput, "{}: tensor \"{}\" is in {}, expected a file name", name_, printable(slot_->first), type);
  }

  bool deeper() {
    if (++depth_ > kMaxJsonDepth) fail(Exit::kInput, "{}: nested more than {} deep", name_, kMaxJsonDepth);
    return true;
  }
  bool shallower() {
    if (--depth_ == 1) in_map_ = in_metadata_ = false;
    return true;
  }

  void check_name(const std::string& file) const {
    const bool plain = !file.empty() && file.size() <= 255 && file.find('/') == std::string::npos &&
                       file.find('\\') == std::string::npos && file.find('\0') == std::string::npos;
    if (!plain || !file.ends_with(".safetensors") || file.starts_with("."))
      fail(Exit::kInput, "{}: tensor \"{}\" is in \"{}\", expected the plain name of a .safetensors file in the folder",
           name_, printable(slot_->first), printable(file));
  }

  Index& index_;
  const std::string& name_;
  int depth_ = 0;
  std::string key_;  // of the object at depth 1, of metadata
  std::pair<const std::string, std::string>* slot_ = nullptr;
  bool in_map_ = false, in_metadata_ = false, has_map_ = false;
};

}  // namespace

Index parse_index(std::string_view json, const std::string& name) {
  Index index;
  Events events(index, name);
  Json::sax_parse(json, &events);
  if (!events.has_map()) fail(Exit::kInput, "{}: no \"weight_map\"", name);
  if (index.weight_map.empty()) fail(Exit::kInput, "{}: weight_map is empty", name);
  return index;
}

}  // namespace mantissa::hf
