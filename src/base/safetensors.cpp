#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/config.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/mapped_range.h"
#include "base/safetensors_header.h"
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

// What helps where weights stand in another kind of file.
std::string_view way_out(Foreign kind) {
  switch (kind) {
    case Foreign::kZip:
    case Foreign::kPickle:
      return "; save it with safetensors.torch.save_file or save_pretrained(safe_serialization=True)";
    case Foreign::kGguf:
      return "; take the model's Hugging Face folder with its .safetensors files";
    case Foreign::kHdf5:
    case Foreign::kNumpy:
    case Foreign::kArrow:
      return "; save the weights as safetensors";
    case Foreign::kGzip:
    case Foreign::kZstd:
      return "; unpack it first";
    default:
      return "";
  }
}

// Tensors one after another from 0 to the end of the data.
void check_places(std::vector<Placed> placed, uint64_t data, const std::string& file) {
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t expected = 0;
  for (const Placed& p : placed) {
    if (p.begin != expected)
      refuse_tensor(file, *p.name,
                    fmt::format("data begins at {}, expected {}: {}", p.begin, expected,
                                p.begin < expected ? "overlaps another tensor" : "a hole before it"));
    expected = p.end;
  }
  if (expected != data) fail(Exit::kInput, "{}: {} bytes follow the last tensor", file, data - expected);
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
  Reader reader = read_mapped(
      file, [&] { return parse(file.bytes(), path); }, [] { return "its header"; });
  reader.file_ = std::move(file);
  return reader;
}

void Reader::check_whole() const {
  if (!is_whole(file_)) refuse_shrunk(file_, "its tensors");
}

Reader Reader::parse(std::span<const std::byte> image, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  uint64_t length = 0;
  if (image.size() >= 8) std::memcpy(&length, image.data(), 8);
  const bool fits = image.size() >= 8 && length <= kMaxHeaderBytes && length <= image.size() - 8;
  // A header of 384 bytes begins as a pickle does, one of 35,615 as gzip.
  const bool plausible = fits && length > 0 && text[8] == '{';
  if (const Foreign kind = recognise_foreign(text.substr(0, 64)); kind != Foreign::kNone && !plausible)
    fail(Exit::kInput, "{}: expected safetensors, found {}{}", name, foreign_name(kind), way_out(kind));
  if (image.size() < 8) fail(Exit::kInput, "{}: has {} bytes, a safetensors file has at least 8", name, image.size());
  if (!fits)
    fail(Exit::kInput, "{}: not safetensors, or cut short: header of {} bytes, file of {} (limit {})", name, length,
         image.size(), kMaxHeaderBytes);
  const std::string_view json = text.substr(8, length);
  if (!json.starts_with('{')) fail(Exit::kInput, "{}: the header does not start with an object", name);

  Reader reader;
  reader.name_ = name;
  reader.header_ = image.first(8 + length);
  Header header = parse_header(json, name);
  reader.metadata_ = std::move(header.metadata);
  reader.tensors_ = std::move(header.tensors);
  const std::span<const std::byte> data = image.subspan(8 + length);
  for (const Placed& p : header.placed) {
    if (p.end > data.size())
      refuse_tensor(
          name, *p.name,
          fmt::format("data_offsets [{}, {}] pass the end of the data ({} bytes)", p.begin, p.end, data.size()));
    reader.tensors_.find(*p.name)->second.bytes = data.subspan(p.begin, p.end - p.begin);
  }
  check_places(std::move(header.placed), data.size(), name);
  return reader;
}

const View* Reader::find(const std::string& tensor) const {
  const auto at = tensors_.find(tensor);
  return at == tensors_.end() ? nullptr : &at->second;
}

const View& Reader::at(const std::string& tensor) const {
  if (const View* view = find(tensor)) return *view;
  std::vector<std::string> names;
  if (tensors_.size() <= 10'000)  // names are compared letter by letter
    for (const auto& [name, view] : tensors_) names.push_back(name);
  const std::string near = config::nearest(tensor, names);
  fail(Exit::kInput, "{}: no tensor \"{}\"{}", name_, tensor,
       near.empty() ? "" : "; the nearest is \"" + printable(near) + '"');
}

}  // namespace mantissa::safetensors
