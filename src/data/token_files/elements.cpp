#include "data/token_files/elements.h"

#include <bit>
#include <limits>

#include "base/error.h"

namespace mantissa {
namespace {

static_assert(std::endian::native == std::endian::little);

struct ElementRow {
  std::string_view name;
  int bytes;
};
// In the order of Element.
constexpr ElementRow kElements[] = {{"uint8", 1},   {"int8", 1},    {"uint16", 2}, {"int16", 2},
                                    {"uint32", 4},  {"int32", 4},   {"uint64", 8}, {"int64", 8},
                                    {"float16", 2}, {"float32", 4}, {"float64", 8}};

// One loop for each type, without a branch inside: the search for a bad id runs only when one was seen.
template <class T>
int64_t copy(const std::byte* from, std::span<int32_t> out, int64_t vocab_size, int64_t also) {
  const auto limit = static_cast<uint64_t>(vocab_size);
  // A negative id becomes huge.
  const auto bad = [&](T value) {
    return (static_cast<uint64_t>(value) >= limit) & (static_cast<int64_t>(value) != also);
  };
  bool any = false;
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = load_as<T>(from + i * sizeof(T));
    any |= bad(value);
    out[i] = static_cast<int32_t>(value);
  }
  if (!any) return -1;
  for (size_t i = 0; i < out.size(); ++i)
    if (bad(load_as<T>(from + i * sizeof(T)))) return static_cast<int64_t>(i);
  return -1;
}

// Calls body with a value of the whole-number type.
template <class Body>
auto with_type(Element type, Body&& body) {
  switch (type) {
    case Element::kU8:
      return body(uint8_t{});
    case Element::kI8:
      return body(int8_t{});
    case Element::kU16:
      return body(uint16_t{});
    case Element::kI16:
      return body(int16_t{});
    case Element::kU32:
      return body(uint32_t{});
    case Element::kI32:
      return body(int32_t{});
    case Element::kU64:
      return body(uint64_t{});
    case Element::kI64:
      return body(int64_t{});
    default:
      fail(Exit::kInternal, "elements: {} is no type of whole numbers", name_of(type));
  }
}

}  // namespace

int bytes_of(Element type) { return kElements[static_cast<size_t>(type)].bytes; }
std::string_view name_of(Element type) { return kElements[static_cast<size_t>(type)].name; }

bool find_element(std::string_view name, Element& type) {
  for (size_t i = 0; i < std::size(kElements); ++i) {
    if (kElements[i].name != name) continue;
    type = static_cast<Element>(i);
    return true;
  }
  return false;
}

int64_t Elements::at(int64_t i) const {
  return with_type(type, [&](auto zero) {
    return static_cast<int64_t>(load_as<decltype(zero)>(data + i * static_cast<int64_t>(sizeof(zero))));
  });
}

int64_t vocabulary_of(Element type) {
  return with_type(type, [](auto zero) {
    constexpr auto kMost = std::numeric_limits<decltype(zero)>::max();
    return sizeof(zero) >= 4 ? int64_t{INT32_MAX} : static_cast<int64_t>(kMost) + 1;
  });
}

int64_t copy_ids(const Elements& from, int64_t begin, std::span<int32_t> out, int64_t vocab_size, int32_t also) {
  check(begin >= 0 && begin <= from.count && static_cast<int64_t>(out.size()) <= from.count - begin,
        "elements {} to {} of {}", begin, begin + static_cast<int64_t>(out.size()), from.count);
  check(vocab_size > 0 && vocab_size <= INT32_MAX, "vocabulary of {}", vocab_size);
  return with_type(from.type, [&](auto zero) {
    return copy<decltype(zero)>(from.data + begin * static_cast<int64_t>(sizeof(zero)), out, vocab_size, also);
  });
}

}  // namespace mantissa
