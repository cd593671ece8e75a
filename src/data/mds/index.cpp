// index.json of a folder: what each shard is called, how large it is and which columns its samples have.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/mds/reader.h"
#include "data/mds/unpack.h"

namespace mantissa::mds {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;

[[noreturn]] void wrong(const std::string& where, const char* key, const Json& found, const char* expected) {
  fail(Exit::kInput, "{}: \"{}\" is {}, expected {}", where, key, printable(found.dump(), 60), expected);
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) wrong(where, key, value, "a string");
  return value.get<std::string>();
}

const Json& list_of(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_array()) wrong(where, key, value, "a list");
  return value;
}

std::vector<std::string> texts_of(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> texts;
  for (const Json& item : list_of(object, key, where)) {
    if (!item.is_string()) wrong(where, key, item, "strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

uint64_t size_of(const Json& object, const char* key, uint64_t limit, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > limit)
    wrong(where, key, value, fmt::format("a whole number from 0 to {}", limit).c_str());
  return value.get<uint64_t>();
}

// A relative path of plain names: it cannot leave the folder but through a link.
void check_basename(const std::string& basename, const std::string& where) {
  bool plain = !basename.empty() && basename.size() <= 4096 && basename.find('\0') == std::string::npos &&
               basename.find('\\') == std::string::npos;
  for (const std::string& part : split(basename, '/')) plain = plain && !part.empty() && part != "." && part != "..";
  if (!plain)
    fail(Exit::kInput, "{}: basename \"{}\", expected a plain name inside the folder", where, printable(basename));
}

FileEntry read_file_entry(const Json& object, const std::string& where) {
  FileEntry file;
  file.basename = text_of(object, "basename", where);
  check_basename(file.basename, where);
  file.bytes = size_of(object, "bytes", INT64_MAX, where);
  if (!object.contains("hashes")) return file;
  const Json& hashes = object.at("hashes");
  if (!hashes.is_object()) wrong(where, "hashes", hashes, "an object");
  for (const auto& [algorithm, digits] : hashes.items()) {
    if (!digits.is_string()) wrong(where, "hashes", digits, "strings");
    file.hashes.emplace(algorithm, digits.get<std::string>());
  }
  return file;
}

std::vector<Column> read_columns(const Json& shard, const std::string& where) {
  const std::vector<std::string> names = texts_of(shard, "column_names", where);
  const std::vector<std::string> encodings = texts_of(shard, "column_encodings", where);
  const Json& sizes = list_of(shard, "column_sizes", where);
  if (names.empty()) fail(Exit::kInput, "{}: no columns", where);
  if (names.size() != encodings.size() || names.size() != sizes.size())
    fail(Exit::kInput, "{}: {} column names, {} encodings, {} sizes, expected as many of each", where, names.size(),
         encodings.size(), sizes.size());
  std::vector<Column> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string place = fmt::format("{}: column \"{}\"", where, printable(names[i]));
    for (const Column& other : columns)
      if (other.name == names[i]) fail(Exit::kInput, "{}: stands twice", place);
    int64_t size = -1;
    if (!sizes[i].is_null()) {
      if (!sizes[i].is_number_unsigned() || sizes[i].get<uint64_t>() > UINT32_MAX)
        wrong(place, "column_sizes", sizes[i], "null or a whole number below 2^32");
      size = sizes[i].get<int64_t>();
    }
    columns.push_back(make_column(names[i], encodings[i], size, place));
  }
  return columns;
}

ShardEntry read_shard_entry(const Json& object, const std::string& where) {
  if (const Json& version = member(object, "version", where); version != 2) wrong(where, "version", version, "2");
  if (const std::string format = text_of(object, "format", where); format != "mds")
    fail(Exit::kInput, "{}: format \"{}\", expected mds", where, printable(format));
  ShardEntry shard;
  if (object.contains("hashes") && !object.at("hashes").is_null()) shard.hashes = texts_of(object, "hashes", where);
  // A sample takes at least its offset, a shard has 32-bit offsets.
  shard.samples = static_cast<int64_t>(size_of(object, "samples", UINT32_MAX / 4, where));
  shard.raw = read_file_entry(member(object, "raw_data", where), where + ": raw_data");
  if (shard.raw.bytes > UINT32_MAX)
    fail(Exit::kInput, "{}: raw_data has {} bytes, a shard stays below 2^32", where, shard.raw.bytes);
  const Json& compression = member(object, "compression", where);
  if (!compression.is_null()) {
    shard.compression = text_of(object, "compression", where);
    if (shard.compression.empty()) wrong(where, "compression", compression, "null or a name");
    shard.zip = read_file_entry(member(object, "zip_data", where), where + ": zip_data");
  }
  return shard;
}

}  // namespace

Folder Folder::open(const std::string& path) {
  Folder folder;
  folder.path_ = path;
  const std::string name = join_path(path, "index.json");
  const std::string text = read_text(name, kMaxIndexBytes);
  folder.index_ = {name, text.size(), sha256(text)};
  const Json index = parse_json(text, name);
  if (const Json& version = member(index, "version", name); version != 2) wrong(name, "version", version, "2");
  const Json& shards = list_of(index, "shards", name);
  if (shards.empty()) fail(Exit::kInput, "{}: no shards", name);
  for (const Json& object : shards) {
    const std::string where = fmt::format("{}: shard {}", name, folder.shards_.size());
    if (!object.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", where, object.type_name());
    std::vector<Column> columns = read_columns(object, where);
    if (folder.columns_ == nullptr)
      folder.columns_ = std::make_shared<const std::vector<Column>>(std::move(columns));
    else if (columns != *folder.columns_)
      fail(Exit::kInput, "{}: has other columns than shard 0", where);
    ShardEntry shard = read_shard_entry(object, where);
    folder.samples_ += shard.samples;
    folder.raw_bytes_ += shard.raw.bytes;
    folder.shards_.push_back(std::move(shard));
  }
  return folder;
}

int Folder::find(std::string_view column) const {
  for (size_t i = 0; i < columns_->size(); ++i)
    if ((*columns_)[i].name == column) return static_cast<int>(i);
  return -1;
}

int Folder::require(const std::string& column) const {
  if (const int found = find(column); found >= 0) return found;
  std::vector<std::string> names;
  for (const Column& each : *columns_)
    names.push_back(printable(each.name, 40) + " (" + printable(each.encoding, 40) + ")");
  fail(Exit::kInput, "{}: no column \"{}\"; found {}", index_.path, printable(column), join(names, ", "));
}

std::string Folder::path_of(const FileEntry& file) const {
  const std::string path = join_path(path_, file.basename);
  std::error_code error;
  const std::filesystem::path root = std::filesystem::canonical(path_, error);
  if (error) fail(Exit::kInput, "{}: {}", path_, error.message());
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) fail(Exit::kInput, "{}: cannot open: {}", path, error.message());
  if (real != root / file.basename)
    fail(Exit::kInput, "{}: is or lies behind a symbolic link, expected a plain file inside the folder", path);
  return path;
}

}  // namespace mantissa::mds
