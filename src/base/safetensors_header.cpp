#include "base/safetensors_header.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace mantissa::safetensors {
namespace {

// The parser's events, each allowed in some places of a header alone.
class Events {
 public:
  Events(Header& header, const std::string& file) : header_(header), file_(file) {}

  bool null() { return other("null", "null"); }
  bool boolean(bool value) { return other("boolean", value ? "true" : "false"); }
  bool number_integer(int64_t value) { return other("number", std::to_string(value)); }
  bool number_float(double, const std::string& text) { return other("number", text); }
  bool binary(Json::binary_t&) { return other("binary", "binary"); }

  bool number_unsigned(uint64_t value) {
    if (place_ == Place::kShape) {
      if (view_->shape.size() == kMaxRank) bad(fmt::format("has more than {} dimensions", kMaxRank));
      if (value > static_cast<uint64_t>(INT64_MAX)) bad(fmt::format("dimension {} is too large", value));
      view_->shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_ == 0 ? begin_ : end_) = value;
      ++offsets_;
      return true;
    }
    return other("number", std::to_string(value));
  }

  bool string(std::string& value) {
    if (place_ == Place::kDtype) {
      bits_ = dtype_bits(value);
      if (bits_ == 0) bad("unknown dtype \"" + printable(value, 40) + '"');
      view_->dtype = std::move(value);
      place_ = Place::kEntry;
      return true;
    }
    if (place_ == Place::kMetadataText) {
      *text_ = std::move(value);
      place_ = Place::kMetadata;
      return true;
    }
    return other("string", '"' + printable(value, 40) + '"');
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kEntryValue:
        place_ = Place::kEntry;
        return true;
      case Place::kMetadataValue:
        place_ = Place::kMetadata;
        return true;
      default:
        return other("object", "{...}");
    }
  }
  bool start_array(size_t) {
    switch (place_) {
      case Place::kShapeValue:
        place_ = Place::kShape;
        return true;
      case Place::kOffsetsValue:
        place_ = Place::kOffsets;
        return true;
      default:
        return other("array", "[...]");
    }
  }
  bool end_array() {
    if (place_ == Place::kOffsets && offsets_ != 2) bad("data_offsets is not [begin, end]");
    place_ = Place::kEntry;
    return true;
  }
  bool end_object() {
    if (place_ == Place::kEntry) finish_tensor();
    place_ = Place::kTop;
    return true;
  }

  bool key(std::string& name) {
    if (place_ == Place::kMetadata) {
      const auto [at, fresh] = header_.metadata.emplace(name, "");
      if (!fresh) twice(name);
      text_ = &at->second;
      place_ = Place::kMetadataText;
    } else if (place_ == Place::kEntry) {
      entry_key(name);
    } else if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) twice(name);
      place_ = Place::kMetadataValue;
    } else {
      const auto [at, fresh] = header_.tensors.try_emplace(std::move(name));
      if (!fresh) twice(at->first);
      name_ = &at->first;
      view_ = &at->second;
      seen_ = 0;
      offsets_ = 0;
      place_ = Place::kEntryValue;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    fail(Exit::kInput, "{}: {}", file_, json_error_text(position, error.what()));
  }

 private:
  enum class Place : uint8_t {
    kStart,
    kTop,
    kEntryValue,
    kEntry,
    kDtype,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kMetadataValue,
    kMetadata,
    kMetadataText
  };
  static constexpr std::string_view kKeys[] = {"dtype", "shape", "data_offsets"};

  [[noreturn]] void bad(const std::string& message) const { refuse_tensor(file_, *name_, message); }
  [[noreturn]] void twice(const std::string& key) const {
    fail(Exit::kInput, "{}: key \"{}\" stands twice in one object", file_, printable(key));
  }

  // A value that does not belong to where it stands.
  [[noreturn]] bool other(const char* type, const std::string& value) const {
    switch (place_) {
      case Place::kEntryValue:
        bad(fmt::format("is {}, expected an object", type));
      case Place::kDtype:
        bad("unknown dtype " + value);
      case Place::kShapeValue:
        bad("shape is no list");
      case Place::kShape:
        bad(fmt::format("a dimension is {}, expected a whole number >= 0", value));
      case Place::kOffsetsValue:
        bad("data_offsets is not [begin, end]");
      case Place::kOffsets:
        if (offsets_ == 2) bad("data_offsets is not [begin, end]");
        bad(fmt::format("data_offsets is {}, expected a whole number >= 0", value));
      case Place::kMetadataValue:
        fail(Exit::kInput, "{}: __metadata__ is {}, expected an object", file_, type);
      case Place::kMetadataText:
        fail(Exit::kInput, "{}: __metadata__ \"{}\" is {}, expected a string", file_, printable(metadata_key()), type);
      default:
        fail(Exit::kInput, "{}: the header is {}, expected an object", file_, type);
    }
  }

  const std::string& metadata_key() const {
    for (const auto& [key, value] : header_.metadata)
      if (&value == text_) return key;
    return file_;
  }

  void entry_key(const std::string& name) {
    for (unsigned i = 0; i < 3; ++i) {
      if (name != kKeys[i]) continue;
      if (seen_ & (1u << i)) twice(name);
      seen_ |= 1u << i;
      constexpr Place kNext[] = {Place::kDtype, Place::kShapeValue, Place::kOffsetsValue};
      place_ = kNext[i];
      return;
    }
    bad(fmt::format("has a key \"{}\", expected dtype, shape and data_offsets", printable(name, 40)));
  }

  void finish_tensor() {
    for (unsigned i = 0; i < 3; ++i)
      if (!(seen_ & (1u << i))) bad(fmt::format("no \"{}\"", kKeys[i]));
    if (end_ < begin_) bad(fmt::format("data_offsets [{}, {}] run backwards", begin_, end_));
    const uint64_t expected = data_bytes(view_->shape, bits_, file_, *name_);
    if (end_ - begin_ != expected)
      bad(fmt::format("data_offsets [{}, {}] hold {} bytes, expected {} ({} {})", begin_, end_, end_ - begin_, expected,
                      view_->dtype, shape_text(view_->shape)));
    header_.placed.push_back({name_, begin_, end_});
  }

  Header& header_;
  const std::string& file_;
  Place place_ = Place::kStart;
  const std::string* name_ = nullptr;  // tensor being read
  View* view_ = nullptr;
  std::string* text_ = nullptr;  // metadata value being read
  unsigned seen_ = 0;            // bit i: kKeys[i]
  int bits_ = 0, offsets_ = 0;
  uint64_t begin_ = 0, end_ = 0;
  bool has_metadata_ = false;
};

}  // namespace

void refuse_tensor(const std::string& file, const std::string& tensor, const std::string& message) {
  fail(Exit::kInput, "{}: tensor \"{}\": {}", file, printable(tensor), message);
}

uint64_t data_bytes(const std::vector<int64_t>& shape, int bits, const std::string& file, const std::string& tensor) {
  uint64_t total = static_cast<uint64_t>(bits);
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total))
      refuse_tensor(file, tensor, "shape " + shape_text(shape) + " overflows");
  if (total % 8 != 0)
    refuse_tensor(file, tensor, "shape " + shape_text(shape) + fmt::format(" at {} bits is no whole byte", bits));
  return total / 8;
}

Header parse_header(std::string_view json, const std::string& file) {
  Header header;
  Events events(header, file);
  Json::sax_parse(json, &events);
  return header;
}

}  // namespace mantissa::safetensors
