#include "train/checkpoint/manifest.h"

#include <algorithm>
#include <map>

#include "base/checksum.h"
#include "base/safetensors.h"

namespace mantissa {
namespace {

constexpr const char* kChecksum = "checksum";

// The text with its checksum, which is that of the text without one.
std::string sealed(Json json) {
  json[kChecksum] = "";
  json[kChecksum] = checksum_of(json.dump(1));
  return json.dump(1) + "\n";
}

class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail(Exit::kInput, "{}: {}, expected an object", where_, json.type_name());
  }

  std::string text(const char* key) const {
    const Json& value = member(json_, key, where_);
    if (!value.is_string()) fail(Exit::kInput, "{}: {} is {}, expected a string", where_, key, value.type_name());
    return value.get<std::string>();
  }
  int64_t count(const char* key) const {
    const Json& value = member(json_, key, where_);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) ||
        value.get<int64_t>() < 0)
      fail(Exit::kInput, "{}: {} is {}, expected a whole number from 0", where_, key, value.dump());
    return value.get<int64_t>();
  }
  const Json& list(const char* key) const {
    const Json& value = member(json_, key, where_);
    if (!value.is_array()) fail(Exit::kInput, "{}: {} is {}, expected an array", where_, key, value.type_name());
    return value;
  }
  std::vector<int64_t> counts(const char* key) const {
    std::vector<int64_t> values;
    for (const Json& value : list(key)) {
      if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
        fail(Exit::kInput, "{}: {} holds {}, expected whole numbers from 0", where_, key, value.dump());
      values.push_back(value.get<int64_t>());
    }
    return values;
  }

 private:
  const Json& json_;
  std::string where_;
};

// One component of a path, of the letters that a checkpoint's own files have.
bool plain_name(const std::string& name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; };
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), plain);
}

int64_t elements(const CheckpointPiece& piece, const std::string& path) {
  int64_t count = 1;
  for (const int64_t dim : piece.shape)
    if (__builtin_mul_overflow(count, dim, &count))
      fail(Exit::kInput, "{}: tensor {}: more elements than fit 63 bits", path, piece.tensor);
  return count;
}

// The pieces of each tensor cover it once.
void expect_whole(const Manifest& manifest, const std::string& path) {
  std::map<std::string, std::vector<const CheckpointPiece*>> tensors;
  for (const CheckpointPiece& piece : manifest.pieces) tensors[piece.tensor].push_back(&piece);
  for (auto& [name, pieces] : tensors) {
    std::sort(pieces.begin(), pieces.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    int64_t next = 0;
    for (const CheckpointPiece* piece : pieces) {
      if (piece->dtype != pieces[0]->dtype || piece->shape != pieces[0]->shape)
        fail(Exit::kInput, "{}: tensor {}: its pieces name two dtypes or shapes", path, name);
      if (piece->first != next || __builtin_add_overflow(piece->first, piece->count, &next))
        fail(Exit::kInput, "{}: tensor {}: a piece begins at element {}, expected {}", path, name, piece->first, next);
    }
    if (next != elements(*pieces[0], path))
      fail(Exit::kInput, "{}: tensor {}: its pieces hold {} of {} elements", path, name, next,
           elements(*pieces[0], path));
  }
}

}  // namespace

std::string Manifest::text() const {
  Json json = {{"format", kFormat}, {"step", step}, {"files", Json::array()}, {"pieces", Json::array()}, {"run", run}};
  for (const CheckpointFile& file : files)
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"header", file.header}});
  for (const CheckpointPiece& piece : pieces)
    json["pieces"].push_back({{"tensor", piece.tensor},
                              {"dtype", piece.dtype},
                              {"shape", piece.shape},
                              {"first", piece.first},
                              {"count", piece.count},
                              {"file", piece.file},
                              {"checksum", piece.checksum}});
  return sealed(std::move(json));
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const Json json = parse_json(text, path);
  const Fields fields(json, path);
  if (const int64_t format = fields.count("format"); format != Manifest::kFormat)
    fail(Exit::kInput, "{}: format {} of a checkpoint, this program reads {}", path, format, Manifest::kFormat);
  static_cast<void>(fields.text(kChecksum));
  // Also where a damaged byte would mean the same: what was written is what is read.
  if (sealed(json) != text) fail(Exit::kInput, "{}: changed since it was written (its checksum differs)", path);

  Manifest manifest{.step = fields.count("step"), .files = {}, .pieces = {}, .run = member(json, "run", path)};
  for (const Json& entry : fields.list("files")) {
    const Fields file(entry, path + ": files");
    manifest.files.push_back({file.text("name"), static_cast<uint64_t>(file.count("bytes")), file.text("header")});
    if (!plain_name(manifest.files.back().name))
      fail(Exit::kInput, "{}: \"{}\" is no file of a checkpoint", path, manifest.files.back().name);
  }
  for (const Json& entry : fields.list("pieces")) {
    const Fields piece(entry, path + ": pieces");
    manifest.pieces.push_back({.tensor = piece.text("tensor"),
                               .dtype = piece.text("dtype"),
                               .shape = piece.counts("shape"),
                               .first = piece.count("first"),
                               .count = piece.count("count"),
                               .file = static_cast<size_t>(piece.count("file")),
                               .checksum = piece.text("checksum")});
    const CheckpointPiece& read = manifest.pieces.back();
    if (read.file >= manifest.files.size())
      fail(Exit::kInput, "{}: tensor {}: file {} of {}", path, read.tensor, read.file, manifest.files.size());
    if (safetensors::dtype_bits(read.dtype) == 0)
      fail(Exit::kInput, "{}: tensor {}: unknown dtype \"{}\"", path, read.tensor, read.dtype);
  }
  expect_whole(manifest, path);
  return manifest;
}

}  // namespace mantissa
