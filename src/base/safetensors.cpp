#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/config.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace mantissa::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little);

struct DtypeRow {
  std::string_view name;
  int bits;
};
constexpr DtypeRow kDtypes[] = {
    {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},       {"I64", 64}, {"I32", 32},
    {"I16", 16},    {"I8", 8},      {"U64", 64},        {"U32", 32},        {"U16", 16}, {"U8", 8},
    {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},     {"F8_E5M2", 8},     {"F4", 4},   {"F8_E8M0", 8},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

// What a file that is no safetensors seems to be, with a way out; "" when nothing is recognised.
std::string_view recognise(std::string_view head) {
  const std::string low = lower(head.substr(0, 64));
  const std::string_view start = trim(low);
  if (head.starts_with("PK\x03\x04"))
    return "a zip archive (a PyTorch .bin/.pt file?), which can run code when loaded; save it with "
           "safetensors.torch.save_file or save_pretrained(safe_serialization=True)";
  if (head.size() >= 2 && head[0] == '\x80' && head[1] >= 1 && head[1] <= 5)
    return "a Python pickle, which can run code when loaded; save it with safetensors.torch.save_file";
  if (head.starts_with("GGUF")) return "a GGUF file; take the model's Hugging Face folder with its .safetensors files";
  if (start.starts_with("version https://git-lfs"))
    return "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`";
  if (start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml"))
    return "a web page, not the file itself; the download failed or needs a login";
  if (head.starts_with("\x89HDF")) return "an HDF5 file; save the weights as safetensors";
  if (head.starts_with("\x93NUMPY")) return "a NumPy file; save it with safetensors.numpy.save_file";
  if (head.starts_with("\x1f\x8b")) return "a gzip file; unpack it first";
  return {};
}

[[noreturn]] void bad(const std::string& file, const std::string& tensor, const std::string& message) {
  fail(Exit::kInput, "{}: tensor \"{}\": {}", file, printable(tensor), message);
}

uint64_t unsigned_of(const Json& value, const std::string& file, const std::string& tensor, const char* what) {
  if (!value.is_number_unsigned())
    bad(file, tensor, fmt::format("{} is {}, expected a whole number >= 0", what, printable(value.dump(), 40)));
  return value.get<uint64_t>();
}

// shape x dtype in bytes, or an error on overflow and on a part of a byte.
uint64_t bytes_of(const std::vector<int64_t>& shape, int bits, const std::string& file, const std::string& tensor) {
  uint64_t total = static_cast<uint64_t>(bits);
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total))
      bad(file, tensor, "shape " + shape_text(shape) + " overflows");
  if (total % 8 != 0)
    bad(file, tensor, "shape " + shape_text(shape) + fmt::format(" at {} bits is no whole byte", bits));
  return total / 8;
}

struct Placed {
  const std::string* name;
  uint64_t begin, end;
};

Placed read_entry(const std::string& name, const Json& entry, const std::string& file, View& view) {
  if (!entry.is_object()) bad(file, name, std::string("is ") + entry.type_name() + ", expected an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) bad(file, name, fmt::format("no \"{}\"", key));
  if (entry.size() != 3)
    bad(file, name, fmt::format("has {} keys, expected dtype, shape and data_offsets", entry.size()));

  const Json& dtype = entry.at("dtype");
  view.dtype = dtype.is_string() ? dtype.get<std::string>() : "";
  const int bits = dtype_bits(view.dtype);
  if (bits == 0) bad(file, name, "unknown dtype " + printable(dtype.dump(), 40));

  const Json& shape = entry.at("shape");
  if (!shape.is_array()) bad(file, name, "shape is no list");
  if (shape.size() > kMaxRank)
    bad(file, name, fmt::format("has {} dimensions, expected at most {}", shape.size(), kMaxRank));
  for (const Json& size : shape) {
    const uint64_t value = unsigned_of(size, file, name, "a dimension");
    if (value > static_cast<uint64_t>(INT64_MAX)) bad(file, name, fmt::format("dimension {} is too large", value));
    view.shape.push_back(static_cast<int64_t>(value));
  }

  const Json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) bad(file, name, "data_offsets is not [begin, end]");
  const Placed placed{&name, unsigned_of(offsets[0], file, name, "data_offsets"),
                      unsigned_of(offsets[1], file, name, "data_offsets")};
  if (placed.end < placed.begin)
    bad(file, name, fmt::format("data_offsets [{}, {}] run backwards", placed.begin, placed.end));
  const uint64_t expected = bytes_of(view.shape, bits, file, name);
  if (placed.end - placed.begin != expected)
    bad(file, name,
        fmt::format("data_offsets [{}, {}] hold {} bytes, expected {} ({} {})", placed.begin, placed.end,
                    placed.end - placed.begin, expected, view.dtype, shape_text(view.shape)));
  return placed;
}

void read_metadata(const Json& value, const std::string& file, Metadata& metadata) {
  if (!value.is_object()) fail(Exit::kInput, "{}: __metadata__ is {}, expected an object", file, value.type_name());
  for (const auto& [key, item] : value.items()) {
    if (!item.is_string())
      fail(Exit::kInput, "{}: __metadata__ \"{}\" is {}, expected a string", file, printable(key), item.type_name());
    metadata[key] = item.get<std::string>();
  }
}

}  // namespace

int dtype_bits(std::string_view dtype) {
  for (const DtypeRow& row : kDtypes)
    if (row.name == dtype) return row.bits;
  return 0;
}

int64_t View::elements() const {
  int64_t total = 1;
  for (const int64_t size : shape) total *= size;
  return total;
}

Reader Reader::open(const std::string& path, Links links) {
  MappedFile file = MappedFile::open(path, links);
  Reader reader = parse(file.bytes(), path);
  reader.file_ = std::move(file);
  return reader;
}

Reader Reader::parse(std::span<const std::byte> image, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (const std::string_view kind = recognise(text); !kind.empty())
    fail(Exit::kInput, "{}: expected safetensors, found {}", name, kind);
  if (image.size() < 8) fail(Exit::kInput, "{}: has {} bytes, a safetensors file has at least 8", name, image.size());
  uint64_t header = 0;
  std::memcpy(&header, image.data(), 8);
  if (header > kMaxHeaderBytes || header > image.size() - 8)
    fail(Exit::kInput, "{}: not safetensors, or cut short: header of {} bytes, file of {} (limit {})", name, header,
         image.size(), kMaxHeaderBytes);
  const std::string_view json = text.substr(8, header);
  if (!json.starts_with('{')) fail(Exit::kInput, "{}: the header does not start with an object", name);
  const Json root = parse_json(json, name);
  if (!root.is_object()) fail(Exit::kInput, "{}: the header is {}, expected an object", name, root.type_name());

  Reader reader;
  reader.name_ = name;
  std::vector<Placed> order;
  const std::span<const std::byte> data = image.subspan(8 + header);
  for (const auto& [key, entry] : root.get_ref<const Json::object_t&>()) {
    if (key == "__metadata__") {
      read_metadata(entry, name, reader.metadata_);
      continue;
    }
    View view;
    const Placed placed = read_entry(key, entry, name, view);
    if (placed.end > data.size())
      bad(name, key,
          fmt::format("data_offsets [{}, {}] pass the end of the data ({} bytes)", placed.begin, placed.end,
                      data.size()));
    view.bytes = data.subspan(placed.begin, placed.end - placed.begin);
    order.push_back(placed);
    reader.tensors_.emplace(key, std::move(view));
  }

  std::sort(order.begin(), order.end(),
            [](const Placed& a, const Placed& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t expected = 0;
  for (const Placed& placed : order) {
    if (placed.begin != expected)
      bad(name, *placed.name,
          fmt::format("data begins at {}, expected {}: {}", placed.begin, expected,
                      placed.begin < expected ? "overlaps another tensor" : "a hole before it"));
    expected = placed.end;
  }
  if (expected != data.size()) fail(Exit::kInput, "{}: {} bytes follow the last tensor", name, data.size() - expected);
  return reader;
}

const View* Reader::find(const std::string& tensor) const {
  const auto at = tensors_.find(tensor);
  return at == tensors_.end() ? nullptr : &at->second;
}

const View& Reader::at(const std::string& tensor) const {
  if (const View* view = find(tensor)) return *view;
  std::vector<std::string> names;
  for (const auto& [name, view] : tensors_) names.push_back(name);
  const std::string near = config::nearest(tensor, names);
  fail(Exit::kInput, "{}: no tensor \"{}\"{}", name_, tensor,
       near.empty() ? "" : "; the nearest is \"" + printable(near) + '"');
}

void write(const std::string& path, std::vector<Entry> entries, const Metadata& metadata) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int bits_a = dtype_bits(a.dtype), bits_b = dtype_bits(b.dtype);
    return bits_a != bits_b ? bits_a > bits_b : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const Entry& entry : entries) {
    const int bits = dtype_bits(entry.dtype);
    check(bits != 0, "safetensors: tensor \"{}\" has unknown dtype \"{}\"", entry.name, entry.dtype);
    check(entry.shape.size() <= kMaxRank, "safetensors: tensor \"{}\" has {} dimensions", entry.name,
          entry.shape.size());
    const uint64_t size = bytes_of(entry.shape, bits, path, entry.name);
    check(size == entry.bytes.size(), "safetensors: tensor \"{}\" holds {} bytes, expected {} ({} {})", entry.name,
          entry.bytes.size(), size, entry.dtype, shape_text(entry.shape));
    check(!header.contains(entry.name), "safetensors: tensor \"{}\" is given twice", entry.name);
    header[entry.name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  check(length <= kMaxHeaderBytes, "safetensors: {}: header of {} bytes, limit {}", path, length, kMaxHeaderBytes);

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(json);
  for (const Entry& entry : entries) file.write(entry.bytes);
  file.commit();
}

}  // namespace mantissa::safetensors
