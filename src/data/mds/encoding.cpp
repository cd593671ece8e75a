#include "data/mds/encoding.h"

#include "base/error.h"
#include "base/text.h"

namespace mantissa::mds {
namespace {

struct NamedKind {
  std::string_view name;
  Kind kind;
};
constexpr NamedKind kKinds[] = {{"bytes", Kind::kBytes},       {"str", Kind::kText},
                                {"json", Kind::kText},         {"str_int", Kind::kNumeral},
                                {"str_float", Kind::kNumeral}, {"str_decimal", Kind::kNumeral}};

// Codes of dtypes in front of an array's values.
struct Code {
  uint8_t code;
  Element element;
};
constexpr Code kCodes[] = {{8, Element::kU8},   {9, Element::kI8},   {16, Element::kU16}, {17, Element::kI16},
                           {18, Element::kF16}, {32, Element::kU32}, {33, Element::kI32}, {34, Element::kF32},
                           {64, Element::kU64}, {65, Element::kI64}, {66, Element::kF64}};

// bytes of the values of a shape; false on overflow of 64 bits.
template <class T>
bool bytes_of_shape(std::span<const T> shape, Element element, uint64_t& bytes) {
  bytes = static_cast<uint64_t>(bytes_of(element));
  for (const T size : shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return false;
  return true;
}

// "ndarray", "ndarray:int32" or "ndarray:int32:2,3".
void parse_ndarray(Column& column, const std::string& where) {
  const std::vector<std::string> parts = split(column.encoding, ':');
  const std::string shown = printable(column.encoding);
  if (parts.size() > 3) fail(Exit::kInput, "{}: encoding \"{}\", expected ndarray:DTYPE:D0,D1,...", where, shown);
  if (parts.size() > 1 && !(parts.size() == 2 && parts[1].empty())) {
    if (!find_element(parts[1], column.element))
      fail(Exit::kInput, "{}: encoding \"{}\": unknown dtype \"{}\"", where, shown, printable(parts[1]));
    column.typed = true;
  }
  if (parts.size() < 3) return;
  for (const std::string& part : split(parts[2], ',')) {
    int64_t size = 0;
    if (!parse_int(part, size) || size < 1 || size > INT32_MAX)
      fail(Exit::kInput, "{}: encoding \"{}\": dimension \"{}\", expected 1 to 2^31 - 1", where, shown,
           printable(part));
    column.shape.push_back(static_cast<uint32_t>(size));
  }
  if (column.shape.size() > kMaxArrayRank)
    fail(Exit::kInput, "{}: encoding \"{}\" has {} dimensions, expected at most {}", where, shown, column.shape.size(),
         kMaxArrayRank);
}

// Bytes of every value where the encoding fixes them, else 0.
uint64_t fixed_bytes(const Column& column, const std::string& where) {
  if (column.kind == Kind::kScalar) return static_cast<uint64_t>(bytes_of(column.element));
  if (column.kind != Kind::kArray || column.shape.empty()) return 0;
  uint64_t bytes = 0;
  if (!bytes_of_shape<uint32_t>(column.shape, column.element, bytes) || bytes > UINT32_MAX)
    fail(Exit::kInput, "{}: encoding \"{}\" takes more than 2^32 bytes", where, printable(column.encoding));
  return bytes;
}

}  // namespace

Column make_column(const std::string& name, const std::string& encoding, int64_t size, const std::string& where) {
  Column column{.name = name, .encoding = encoding};
  if (encoding == "pkl" || encoding.starts_with("pkl:"))
    fail(Exit::kInput, "{}: is pkl, a Python pickle, which can run code when loaded; write the folder without it",
         where);
  if (encoding == "ndarray" || encoding.starts_with("ndarray:")) {
    column.kind = Kind::kArray;
    parse_ndarray(column, where);
  } else if (encoding == "int") {
    column.kind = Kind::kScalar, column.element = Element::kI64, column.typed = true;
  } else if (find_element(encoding, column.element)) {
    column.kind = Kind::kScalar, column.typed = true;
  } else {
    for (const NamedKind& row : kKinds)
      if (row.name == encoding) column.kind = row.kind;
  }
  // 0 is null to MosaicML's reader too.
  if (size <= 0) {
    if (column.kind == Kind::kScalar) column.kind = Kind::kRawArray;
    if (const uint64_t bytes = fixed_bytes(column, where); bytes != 0)
      fail(Exit::kInput, "{}: encoding \"{}\" without a size, expected {}", where, printable(encoding), bytes);
    return column;
  }
  const uint64_t expected = fixed_bytes(column, where);
  const bool free_size = column.kind == Kind::kBytes || column.kind == Kind::kOther;
  if (size > UINT32_MAX || (!free_size && static_cast<uint64_t>(size) != expected))
    fail(Exit::kInput, "{}: encoding \"{}\" with a size of {}, expected {}", where, printable(encoding), size,
         expected != 0 ? std::to_string(expected) : "null");
  column.size = static_cast<uint32_t>(size);
  return column;
}

Array decode_array(const Column& column, std::span<const std::byte> value) {
  check(column.kind == Kind::kArray || column.kind == Kind::kRawArray, "is {}, no array", column.encoding);
  Array array;
  array.values.type = column.element;
  const auto take = [&](size_t bytes, const char* what) {
    if (value.size() < bytes)
      fail(Exit::kInput, "{} bytes left, the {} of an array takes {}", value.size(), what, bytes);
    const std::span<const std::byte> taken = value.first(bytes);
    value = value.subspan(bytes);
    return taken;
  };
  if (column.kind == Kind::kRawArray) {
    const auto width = static_cast<size_t>(bytes_of(column.element));
    if (value.size() % width != 0)
      fail(Exit::kInput, "{} bytes are no whole number of {}", value.size(), name_of(column.element));
    array.shape[0] = static_cast<int64_t>(value.size() / width);
    array.values.data = value.data(), array.values.count = array.shape[0];
    return array;
  }
  if (!column.typed) {
    const auto code = static_cast<uint8_t>(take(1, "dtype")[0]);
    bool found = false;
    for (const Code& row : kCodes)
      if (row.code == code) array.values.type = row.element, found = true;
    if (!found) fail(Exit::kInput, "unknown dtype code {}", code);
  }
  std::array<uint64_t, kMaxArrayRank> shape{};
  if (!column.shape.empty()) {
    array.rank = column.shape.size();
    for (size_t i = 0; i < array.rank; ++i) shape[i] = column.shape[i];
  } else {
    const auto head = static_cast<uint8_t>(take(1, "shape")[0]);
    array.rank = head >> 2;
    if (array.rank < 1 || array.rank > kMaxArrayRank)
      fail(Exit::kInput, "{} dimensions, expected 1 to {}", array.rank, kMaxArrayRank);
    const size_t width = size_t{1} << (head & 3);
    const std::span<const std::byte> dims = take(array.rank * width, "shape");
    for (size_t i = 0; i < array.rank; ++i) std::memcpy(&shape[i], dims.data() + i * width, width);
  }
  uint64_t expected = 0;
  const bool fits = bytes_of_shape<uint64_t>(std::span(shape).first(array.rank), array.values.type, expected);
  if (!fits || expected != value.size()) {
    std::vector<std::string> sizes;
    for (size_t i = 0; i < array.rank; ++i) sizes.push_back(std::to_string(shape[i]));
    fail(Exit::kInput, "{} bytes of values, expected {} ({} [{}])", value.size(),
         fits ? std::to_string(expected) : "no more than 2^64", name_of(array.values.type), join(sizes, ", "));
  }
  // Beside a dimension of 0 the others may be anything.
  for (size_t i = 0; i < array.rank; ++i) {
    if (shape[i] > INT64_MAX) fail(Exit::kInput, "dimension {} is too large", shape[i]);
    array.shape[i] = static_cast<int64_t>(shape[i]);
  }
  array.values.data = value.data();
  array.values.count = static_cast<int64_t>(value.size()) / bytes_of(array.values.type);
  return array;
}

}  // namespace mantissa::mds
