// Shards: u32 samples, u32 offsets[samples + 1], JSON, then the samples; a sample is a u32 size for each column without
// a fixed one, then the values.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "data/mds/reader.h"
#include "data/mds/unpack.h"

namespace mantissa::mds {
namespace {

constexpr uint64_t kMaxHeaderJson = uint64_t{1} << 20;

uint32_t load_u32(std::string_view image, size_t at) {
  uint32_t value;
  std::memcpy(&value, image.data() + at, 4);
  return value;
}

// The JSON inside a shard must tell the columns of the index.
void check_json(std::string_view text, const std::vector<Column>& columns, const std::string& name) {
  if (text.size() > kMaxHeaderJson)
    fail(Exit::kInput, "{}: {} bytes between offsets and samples, expected JSON of at most {}", name, text.size(),
         kMaxHeaderJson);
  const std::string where = name + ": header";
  const Json json = parse_json(text, where);
  Json expected = Json::object();
  for (const char* key : {"column_names", "column_encodings", "column_sizes"}) expected[key] = Json::array();
  for (const Column& column : columns) {
    expected["column_names"].push_back(column.name);
    expected["column_encodings"].push_back(column.encoding);
    expected["column_sizes"].push_back(column.size == 0 ? Json() : Json(column.size));
  }
  for (const auto& [key, value] : expected.items()) {
    const Json& found = member(json, key, where);
    Json list = found;  // a size of 0 is a null
    if (list.is_array())
      for (Json& item : list)
        if (item == 0) item = nullptr;
    if (list != value)
      fail(Exit::kInput, "{}: {} is {}, index.json says {}", where, key, printable(found.dump(), 200),
           printable(value.dump(), 200));
  }
}

// An Error of `body` gets the place in front; the text is made only then.
template <class Body>
auto at_place(const Shard& shard, int64_t sample, int column, Body&& body) {
  try {
    return body();
  } catch (Error& error) {
    error.add_context(shard.where(sample, column));
    throw;
  }
}

}  // namespace

std::string Shard::where(int64_t sample, int column) const {
  return fmt::format("{}: sample {}, column \"{}\"", name_, sample,
                     printable((*columns_)[static_cast<size_t>(column)].name, 40));
}

void Shard::check_header(int64_t samples_expected) {
  const uint64_t size = image_.size();
  if (size < 8) fail(Exit::kInput, "{}: has {} bytes, a shard has at least 8", name_, size);
  if (size > UINT32_MAX) fail(Exit::kInput, "{}: has {} bytes, a shard stays below 2^32", name_, size);
  samples_ = load_u32(image_, 0);
  if (samples_ != samples_expected)
    fail(Exit::kInput, "{}: {} samples, index.json says {}", name_, samples_, samples_expected);
  const uint64_t table_end = 4 * (static_cast<uint64_t>(samples_) + 2);
  if (table_end > size)
    fail(Exit::kInput, "{}: the offsets of {} samples end at byte {}, the file at {}", name_, samples_, table_end,
         size);
  uint64_t last = table_end;
  for (int64_t i = 0; i <= samples_; ++i) {
    const uint64_t offset = load_u32(image_, 4 * (static_cast<size_t>(i) + 1));
    if (offset < last || offset > size)
      fail(Exit::kInput, "{}: offset {} of sample {}, expected {} to {}", name_, offset, i, last, size);
    last = offset;
  }
  if (last != size) fail(Exit::kInput, "{}: the samples end at byte {}, the file at {}", name_, last, size);
  check_json(image_.substr(table_end, load_u32(image_, 4) - table_end), *columns_, name_);
  for (const Column& column : *columns_) variable_ += column.size == 0;
}

std::span<const std::byte> Shard::bytes(int64_t sample, int column) const {
  check(sample >= 0 && sample < samples_, "{}: sample {} of {}", name_, sample, samples_);
  check(column >= 0 && static_cast<size_t>(column) < columns_->size(), "{}: column {}", name_, column);
  const size_t entry = 4 * (static_cast<size_t>(sample) + 1);
  const uint64_t begin = load_u32(image_, entry), end = load_u32(image_, entry + 4);
  // The offsets were checked when the shard was opened, and lie in a file that may have changed since.
  if (begin > end || end > image_.size())
    fail(Exit::kInput, "{}: sample {} lies at bytes {} to {} of {}", name_, sample, begin, end, image_.size());
  if (end - begin < 4 * variable_)
    fail(Exit::kInput, "{}: sample {} has {} bytes, its sizes alone take {}", name_, sample, end - begin,
         4 * variable_);
  uint64_t word = begin, at = begin + 4 * variable_, wanted = 0, wanted_size = 0;
  for (size_t i = 0; i < columns_->size(); ++i) {
    uint64_t size = (*columns_)[i].size;
    if (size == 0) size = load_u32(image_, word), word += 4;
    if (i == static_cast<size_t>(column)) wanted = at, wanted_size = size;
    at += size;
  }
  if (at != end)
    fail(Exit::kInput, "{}: the values of sample {} take {} bytes, the offsets give it {}", name_, sample, at - begin,
         end - begin);
  return std::as_bytes(std::span(image_.data() + wanted, wanted_size));
}

std::string_view Shard::text(int64_t sample, int column) const {
  const std::span<const std::byte> value = bytes(sample, column);
  const Column& spec = (*columns_)[static_cast<size_t>(column)];
  if (spec.kind != Kind::kText && spec.kind != Kind::kNumeral)
    fail(Exit::kInput, "{}: is {}, expected text (str)", where(sample, column), printable(spec.encoding));
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

int64_t Shard::integer(int64_t sample, int column) const {
  const Column& spec = (*columns_)[static_cast<size_t>(column)];
  if (spec.encoding == "str_int") {
    const std::string_view digits = text(sample, column);
    int64_t value = 0;
    if (!parse_int(digits, value))
      fail(Exit::kInput, "{}: \"{}\" is no 64-bit integer", where(sample, column), printable(digits, 40));
    return value;
  }
  if (spec.kind != Kind::kScalar || is_float(spec.element))
    fail(Exit::kInput, "{}: is {}, expected an integer", where(sample, column), printable(spec.encoding));
  const Elements one{bytes(sample, column).data(), 1, spec.element};
  const int64_t value = one.at(0);
  if (spec.element == Element::kU64 && value < 0)
    fail(Exit::kInput, "{}: {} is above 2^63 - 1", where(sample, column), static_cast<uint64_t>(value));
  return value;
}

Array Shard::array(int64_t sample, int column) const {
  const std::span<const std::byte> value = bytes(sample, column);
  return at_place(*this, sample, column, [&] {
    const Column& spec = (*columns_)[static_cast<size_t>(column)];
    if (spec.kind != Kind::kArray && spec.kind != Kind::kRawArray)
      fail(Exit::kInput, "is {}, expected an array (ndarray)", printable(spec.encoding));
    return decode_array(spec, value);
  });
}

Shard open_shard_image(std::string_view image, const std::string& name, const std::vector<Column>& columns,
                       int64_t samples) {
  Shard shard;
  shard.image_ = image;
  shard.name_ = name;
  shard.columns_ = std::make_shared<const std::vector<Column>>(columns);
  shard.check_header(samples);
  return shard;
}

Shard Folder::open_shard(size_t index) const {
  check(index < shards_.size(), "{}: shard {} of {}", path_, index, shards_.size());
  const ShardEntry& entry = shards_[index];
  Shard shard;
  shard.columns_ = columns_;
  const auto map = [&](const FileEntry& file) {
    MappedFile mapped = MappedFile::open(path_of(file), Links::kRefuse);
    if (mapped.bytes().size() != file.bytes)
      fail(Exit::kInput, "{}: has {} bytes, index.json says {}", mapped.path(), mapped.bytes().size(), file.bytes);
    return mapped;
  };
  if (entry.compression.empty() || exists(join_path(path_, entry.raw.basename))) {
    shard.file_ = map(entry.raw);
    shard.image_ = shard.file_.text();
    shard.name_ = shard.file_.path();
  } else {
    const MappedFile packed = map(entry.zip);
    shard.name_ = packed.path();
    shard.unpacked_ = std::make_shared<const std::string>(read_mapped(
        packed, [&] { return unpack(packed.text(), entry.compression, entry.raw.bytes, shard.name_); },
        [] { return "its packed bytes"; }));
    shard.image_ = *shard.unpacked_;
  }
  shard.read([&] { shard.check_header(entry.samples); }, [] { return "its header"; });
  return shard;
}

}  // namespace mantissa::mds
